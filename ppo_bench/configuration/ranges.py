"""Ranges of a configuration's values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ppo_bench.algorithms.base import NUMBERS
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.precision import PRECISIONS


def _is_inside(name: str) -> bool:
    path = Path(name)
    return name.strip() != "" and not path.is_absolute() and ".." not in path.parts


class Rule(NamedTuple):
    """A rule for the values of a key: a test, and the words for what fails it."""

    holds: Callable[[Any], bool]
    words: str

    def or_null(self) -> Rule:
        """The rule for a key that may be null."""
        return Rule(lambda value: value is None or self.holds(value), f"{self.words}, or null")


def _can_be_recorded(value: Any) -> bool:
    """Whether the keys of every mapping in `value` are of one type, so that they can be sorted, and numbers finite."""
    if isinstance(value, Mapping):
        return len(set(map(type, value))) < 2 and all(map(_can_be_recorded, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_can_be_recorded, value))
    return not isinstance(value, float) or math.isfinite(value)


RECORDABLE = Rule(_can_be_recorded, "the keys of a mapping must be all names, or all numbers, and numbers finite")
NATURAL = Rule(lambda value: value >= 1, "must be at least 1")
POSITIVE = Rule(lambda value: 0 < value < math.inf, "must be above 0")
NOT_NEGATIVE = Rule(lambda value: 0 <= value < math.inf, "must not be negative")
UNIT = Rule(lambda value: 0 <= value <= 1, "must lie between 0 and 1")
NOT_BLANK = Rule(lambda value: value is None or value.strip() != "", "must not be empty")
RULES = {
    "seed": Rule(lambda value: 0 <= value < 2**31, f"must lie between 0 and {2**31 - 1}"),
    "num_seeds": NATURAL,
    "precision": Rule(lambda value: value in PRECISIONS, f"choose one of {', '.join(PRECISIONS)}"),
    "device": Rule(
        lambda value: re.fullmatch(r"auto|cpu|cuda(:\d+)?", value) is not None, "choose auto, cpu, cuda or cuda:<i>"
    ),
    "devices": NATURAL,
    "name": Rule(_is_inside, "must be a relative path without '..'"),
    "outputs": Rule(lambda value: value.strip() != "", "must name a folder"),
    "env.game": Rule(lambda value: value is None or value.strip() != "", "must name a game"),
    "env.name": NOT_BLANK,
    "env.id": NOT_BLANK,
    "env.kwargs": RECORDABLE,
    "env.wrappers": RECORDABLE,
    "env.players": NATURAL,
    "env.atari.frames": NATURAL,
    "env.atari.repeat_action_probability": Rule(lambda value: 0 <= value < 1, "must be at least 0 and below 1"),
    "checkpoint.every_iterations": NATURAL,
    "checkpoint.keep": NATURAL,
    "video.every_episodes": NOT_NEGATIVE,
    "evaluation.every_iterations": NOT_NEGATIVE,
    "evaluation.episodes": NATURAL,
    "ppo.shards": NATURAL,
    "ppo.num_envs": NATURAL,
    "ppo.num_steps": NATURAL,
    "ppo.update_epochs": NATURAL,
    "ppo.num_minibatches": NATURAL,
    "ppo.learning_rate": POSITIVE,
    "ppo.final_learning_rate": NOT_NEGATIVE,
    "ppo.anneal_timesteps": NATURAL.or_null(),
    "ppo.adam_eps": POSITIVE,
    "ppo.weight_decay": NOT_NEGATIVE,
    "ppo.gamma": UNIT,
    "ppo.gae_lambda": UNIT,
    "ppo.clip_coef": POSITIVE,
    "ppo.ent_coef": NOT_NEGATIVE,
    "ppo.final_ent_coef": NOT_NEGATIVE.or_null(),
    "ppo.vf_coef": NOT_NEGATIVE,
    "ppo.max_grad_norm": POSITIVE,
    "ppo.target_kl": POSITIVE.or_null(),
    "ppo.obs_clip": POSITIVE,
    "ppo.reward_clip": POSITIVE,
}


def check_values(config: Config) -> None:
    """Raise `ConfigError` for the first value that is out of range."""
    root, ppo = config.root, config.ppo
    for key, rule in RULES.items():
        if key.startswith("env.atari.") and root.env.atari is None:
            continue
        value = attrgetter(key)(config if key.startswith("ppo.") else root)
        if not rule.holds(value):
            raise ConfigError(f"{key}={value}: {rule.words}")
    if config.algorithm.name == "rnd" and root.env.atari and root.env.atari.frames % 3 == 0:
        raise ConfigError(
            f"env.atari.frames={root.env.atari.frames}: algorithm=rnd would take three grey frames for the colours of "
            "one; choose another number"
        )
    _check_grid(config)
    if root.seed + root.num_seeds > 2**31:
        raise ConfigError(f"seed + num_seeds={root.seed + root.num_seeds}: must be at most {2**31}")
    if ppo.batch_size % ppo.num_minibatches:
        raise ConfigError(
            f"ppo.num_minibatches={ppo.num_minibatches} does not divide the batch of ppo.num_envs x ppo.num_steps = "
            f"{ppo.batch_size}: choose a divisor"
        )
    _check_devices(config)
    if root.checkpoint.fine_tune and root.checkpoint.load is None:
        raise ConfigError("checkpoint.fine_tune=true: name the run to begin with by checkpoint.load=RUN_DIR")
    _check_players(config)
    if ppo.final_ent_coef is not None and ppo.anneal_timesteps is None:
        raise ConfigError(
            f"ppo.final_ent_coef={ppo.final_ent_coef} is reached after ppo.anneal_timesteps: say how many, "
            f"for instance {root.total_timesteps}"
        )
    if ppo.batch_size >= 2**31:
        raise ConfigError(f"ppo.num_envs x ppo.num_steps = {ppo.batch_size}: must be below {2**31}")
    if root.total_timesteps < ppo.batch_size:
        raise ConfigError(
            f"total_timesteps={root.total_timesteps} is less than one iteration of ppo.num_envs x ppo.num_steps = "
            f"{ppo.batch_size}: ask for at least that many"
        )
    if config.num_iterations >= 2**31:
        raise ConfigError(f"total_timesteps={root.total_timesteps}: fewer than {2**31} iterations are possible")


def _check_grid(config: Config) -> None:
    """Raise `ConfigError` unless `grid` has different values in their ranges, of `NUMBERS` alone."""
    for key, values in (config.root.grid or {}).items():
        if key not in (known := [f"ppo.{name}" for name in NUMBERS]):
            raise ConfigError(
                f"grid has {key}: one program takes several values of {', '.join(known)}; use a sweep (-m)"
            )
        numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
        if not values or not numbers or len(set(values)) < len(values):
            raise ConfigError(f"grid: {key}={values} must be a list of numbers, all different, as in [0.1,0.2]")
        for value in values:
            if not RULES[key].holds(value):
                raise ConfigError(f"grid: {key}={value}: {RULES[key].words}")
    if "ppo.gamma" in config.grid and config.ppo.norm_reward:
        raise ConfigError("grid: ppo.norm_reward=true needs one ppo.gamma: use a sweep (-m)")


def _check_players(config: Config) -> None:
    """Raise `ConfigError` for what games of several players do not have, and for what they alone have."""
    root = config.root
    if config.algorithm.name == "rnd" and root.env.atari and root.env.players > 1:
        raise ConfigError(
            f"algorithm=rnd learns to predict the newest frame, and {root.env.name} shows planes of its players behind "
            "the frames: use algorithm=ppo"
        )
    if root.evaluation.every_iterations and root.env.players > 1:
        raise ConfigError(
            f"evaluation.every_iterations={root.evaluation.every_iterations}: against itself a policy's mean return is "
            "zero; `ppo-bench evaluate RUN_DIR against=random` plays checkpoints of games"
        )


def _check_devices(config: Config) -> None:
    """Raise `ConfigError` unless shards and devices divide the environments into equal parts."""
    root, shards, envs = config.root, config.ppo.shards, config.ppo.num_envs
    if shards % root.devices:
        raise ConfigError(
            f"devices={root.devices} does not divide ppo.shards={shards}, the groups of environments that minibatches "
            f"are drawn from: add ppo.shards={root.devices}, which is another experiment"
        )
    if envs % shards:
        raise ConfigError(f"ppo.shards={shards} does not divide ppo.num_envs={envs}: choose a divisor")
    if shards > 1 and envs // shards % root.env.players:
        raise ConfigError(
            f"ppo.shards={shards}: {root.env.name} has games of {root.env.players} players, and each shard of "
            f"{envs // shards} rows must have whole ones"
        )
    if root.devices == 1:
        return
    if ":" in root.device:
        raise ConfigError(f"device={root.device} names one, and devices={root.devices}: use device=cuda or device=auto")
    if config.trains_several:
        raise ConfigError(
            f"devices={root.devices}: num_seeds={root.num_seeds} and grid divide the devices among runs; use one run"
        )
