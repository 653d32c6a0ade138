"""The command line of a script of CleanRL's that trains what a configuration describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config

OF_PPO = (
    *("learning_rate", "num_envs", "num_steps", "anneal_lr", "gamma", "gae_lambda", "num_minibatches"),
    *("update_epochs", "norm_adv", "clip_coef", "clip_vloss", "ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)
"""Arguments with the names of their keys in the group `ppo`."""
VALUES: dict[str, Callable[[Config], Any]] = {
    "seed": lambda config: config.root.seed,
    "env_id": lambda config: re.sub("(.*)Easy-v0", lambda procgen: procgen[1].lower(), config.task.id),
    "total_timesteps": lambda config: config.root.total_timesteps,
    "cuda": lambda config: False,
    **{name: (lambda config, name=name: getattr(config.ppo, name)) for name in OF_PPO},  # type: ignore[misc]
}
"""Values of arguments, by their names in the script's `Args`."""


def arguments_of(script: Path, config: Config) -> list[str]:
    """The arguments that `script` declares and `config` determines. Raises `ConfigError` if it declares none."""
    body = re.search(r"^class Args:\n(.*?)^\S", script.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    declared = re.findall(r"^    (\w+): ", body[1], re.MULTILINE) if body else []
    if not declared:
        raise ConfigError(f"against={script}: it has no `class Args`, as CleanRL's scripts have")
    given = [(name, VALUES[name](config)) for name in declared if name in VALUES]
    return [word for name, value in given if value is not None for word in _words(name.replace("_", "-"), value)]


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
