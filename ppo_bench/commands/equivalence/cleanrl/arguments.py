"""The command line of a script of CleanRL's that trains what a configuration describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config

PPO_ARGUMENTS = (
    *("learning_rate", "num_envs", "num_steps", "anneal_lr", "gamma", "gae_lambda", "num_minibatches"),
    *("update_epochs", "norm_adv", "clip_coef", "clip_vloss", "ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)
"""Arguments of CleanRL's that have the same name in the group `ppo`."""
RND_ARGUMENTS = ("int_coef", "ext_coef", "int_gamma", "update_proportion")
"""Arguments of CleanRL's that have the same name in the group `algorithm`."""


def arguments_of(script: Path, config: Config) -> list[str]:
    """Words for the arguments of `script` that `config` determines. Raises `ConfigError` if it declares none."""
    text = script.read_text(encoding="utf-8")
    fields = re.search(r"^class Args:\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    parsed = [name.replace("-", "_") for name in re.findall(r"parser\.add_argument\(\"--([\w-]+)\"", text)]
    declared = re.findall(r"^    (\w+): ", fields[1], re.MULTILINE) if fields else parsed
    if not declared:
        raise ConfigError(f"against={script}: it has no `class Args`, as CleanRL's scripts have")
    words, values = [], _values(config) | {"vf_coef": config.ppo.vf_coef * SCRIPTS[script.stem].vf_coef}
    for name in declared:
        flag, value = name.replace("_", "-"), values.get(name)
        if isinstance(value, bool) and fields:
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _values(config: Config) -> dict[str, Any]:
    """Values of arguments, by their names in scripts; null ones are left out."""
    ppo, algorithm, network = config.ppo, config.algorithm, config.resolved["network"]
    return {
        "seed": config.root.seed,
        "env_id": _env_id(config.task.id),
        "total_timesteps": config.root.total_timesteps,
        "cuda": False,
        **{name: getattr(ppo, name) for name in PPO_ARGUMENTS},
        "local_num_envs": ppo.num_envs // ppo.shards,
        **{name: getattr(algorithm, name, None) for name in RND_ARGUMENTS},
        "num_iterations_obs_norm_init": algorithm.num_warmup_rollouts,
        "init_lr": ppo.learning_rate,
        "final_lr": ppo.final_learning_rate if ppo.anneal_lr else ppo.learning_rate,
        "init_ent_coef": ppo.ent_coef,
        "final_ent_coef": ppo.ent_coef if ppo.final_ent_coef is None else ppo.final_ent_coef,
        "anneal_steps": ppo.anneal_timesteps or config.root.total_timesteps,
        "trxl_num_layers": network.get("layers"),
        "trxl_num_heads": network.get("heads"),
        "trxl_dim": network.get("dim"),
        "trxl_memory_length": network.get("memory", 0) + 1,
        "trxl_positional_encoding": network.get("positions", "").replace("none", ""),
    }


def _env_id(name: str) -> str:
    """The environment's name in a script."""
    name = re.sub("(.*)Easy-v0", lambda procgen: procgen[1].lower(), name.rpartition(":")[2])
    name = re.sub("atari/(.*)-v", r"\1_v", name)
    return name.replace("ProofOfMemory", "ProofofMemory")
