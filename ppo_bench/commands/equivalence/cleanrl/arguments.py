"""The command line of a script of CleanRL's that trains what a configuration describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config

OF_PPO = (
    *("learning_rate", "num_envs", "num_steps", "anneal_lr", "gamma", "gae_lambda", "num_minibatches"),
    *("update_epochs", "norm_adv", "clip_coef", "clip_vloss", "ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)
"""Arguments with the names of their keys in the group `ppo`."""
OF_RND = ("int_coef", "ext_coef", "int_gamma", "update_proportion")
"""Arguments with the names of their keys in the group `algorithm`."""
VALUES: dict[str, Callable[[Config], Any]] = {
    "seed": lambda config: config.root.seed,
    "env_id": lambda config: _env_id(config.task.id),
    "total_timesteps": lambda config: config.root.total_timesteps,
    "cuda": lambda config: False,
    **{name: (lambda config, name=name: getattr(config.ppo, name)) for name in OF_PPO},  # type: ignore[misc]
    "local_num_envs": lambda config: config.ppo.num_envs // config.ppo.shards,
    **{name: (lambda config, name=name: getattr(config.algorithm, name)) for name in OF_RND},  # type: ignore[misc]
    "num_iterations_obs_norm_init": lambda config: config.algorithm.warm_up,
    "init_lr": lambda config: config.ppo.learning_rate,
    "final_lr": lambda config: config.ppo.final_learning_rate if config.ppo.anneal_lr else config.ppo.learning_rate,
    "init_ent_coef": lambda config: config.ppo.ent_coef,
    "final_ent_coef": lambda config: (
        config.ppo.ent_coef if config.ppo.final_ent_coef is None else config.ppo.final_ent_coef
    ),
    "anneal_steps": lambda config: config.ppo.anneal_timesteps or config.root.total_timesteps,
    "trxl_num_layers": lambda config: config.resolved["network"]["layers"],
    "trxl_num_heads": lambda config: config.resolved["network"]["heads"],
    "trxl_dim": lambda config: config.resolved["network"]["dim"],
    "trxl_memory_length": lambda config: config.resolved["network"]["memory"] + 1,
    "trxl_positional_encoding": lambda config: config.resolved["network"]["positions"].replace("none", ""),
}
"""Values of arguments, by their names in a script."""


def arguments_of(script: Path, config: Config) -> list[str]:
    """The arguments that `script` declares and `config` determines. Raises `ConfigError` if it declares none."""
    text, scale = script.read_text(encoding="utf-8"), SCRIPTS[script.stem].vf_coef
    values = VALUES | {"vf_coef": lambda config: config.ppo.vf_coef * scale}
    body = re.search(r"^class Args:\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    parsed = [name.replace("-", "_") for name in re.findall(r"parser\.add_argument\(\"--([\w-]+)\"", text)]
    declared = re.findall(r"^    (\w+): ", body[1], re.MULTILINE) if body else parsed
    if not declared:
        raise ConfigError(f"against={script}: it has no `class Args`, as CleanRL's scripts have")
    given = [(name, values[name](config)) for name in declared if name in values]
    words = [_words(name.replace("_", "-"), value, flags=body is not None) for name, value in given]
    return [word for part in words for word in part]


def _env_id(name: str) -> str:
    """The environment's name in a script."""
    name = re.sub("(.*)Easy-v0", lambda procgen: procgen[1].lower(), name.rpartition(":")[2])
    name = re.sub("atari/(.*)-v", r"\1_v", name)
    return name.replace("ProofOfMemory", "ProofofMemory")


def _words(flag: str, value: Any, flags: bool) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool) and flags:
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
