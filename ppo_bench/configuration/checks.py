"""Checks of a configuration's values: their ranges, and what does not go together."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from ppo_bench.algorithms.base import VMAPPABLE_HYPERPARAMETERS, Hyperparameters
from ppo_bench.algorithms.rnd import Rnd
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import check_ranges
from ppo_bench.configuration.config import Config


def check_values(config: Config) -> None:
    """Raise `ConfigError` for the first value that is out of its range, or does not go with others."""
    root, ppo = config.root, config.ppo
    check_ranges(root)
    trackers = ((f"tracker.{name}", tracker) for name, tracker in config.trackers.items())
    choices = ("backend", config.backend), ("network", config.network), ("algorithm", config.algorithm)
    for group, choice in (*choices, *trackers):
        if is_dataclass(choice):
            check_ranges(choice, f"{group}.")
    if isinstance(config.algorithm, Rnd) and root.env.atari and root.env.atari.frames % 3 == 0:
        raise ConfigError(
            f"env.atari.frames={root.env.atari.frames}: algorithm=rnd would take three grey frames for the colours of "
            "one; choose another number"
        )
    _check_game(config)
    _check_grid(config)
    if ppo.batch_size % ppo.num_minibatches:
        raise ConfigError(
            f"ppo.num_minibatches={ppo.num_minibatches} does not divide the batch of ppo.num_envs x ppo.num_steps = "
            f"{ppo.batch_size}: choose a divisor"
        )
    _check_devices(config)
    _check_groups(config)
    if root.checkpoint.fine_tune and root.checkpoint.load is None:
        raise ConfigError("checkpoint.fine_tune=true: name the run to begin with by checkpoint.load=RUN_DIR")
    _check_players(config)
    if ppo.final_ent_coef is not None and ppo.anneal_timesteps is None:
        raise ConfigError(
            f"ppo.final_ent_coef={ppo.final_ent_coef} is reached after ppo.anneal_timesteps: say how many, "
            f"for instance {root.total_timesteps}"
        )
    if not ppo.anneal_lr and ppo.final_learning_rate:
        raise ConfigError(f"ppo.final_learning_rate={ppo.final_learning_rate} needs ppo.anneal_lr=true")
    for learning_rate in config.grid.get("ppo.learning_rate", [ppo.learning_rate]):
        _check_adaptive_kl(ppo, learning_rate)
    if root.total_timesteps < ppo.batch_size:
        raise ConfigError(
            f"total_timesteps={root.total_timesteps} is less than one iteration of ppo.num_envs x ppo.num_steps = "
            f"{ppo.batch_size}: ask for at least that many"
        )
    if (last := root.seed + root.num_seeds - 1) >= 2**31:
        raise ConfigError(f"the last seed = {last}: noise takes numbers below {2**31}")


def _check_adaptive_kl(ppo: Hyperparameters, learning_rate: float) -> None:
    """Raise `ConfigError` for a learning rate that is both adapted and annealed, or begins outside of its bounds."""
    if ppo.adaptive_kl is None:
        return
    if ppo.anneal_lr:
        raise ConfigError(f"ppo.adaptive_kl={ppo.adaptive_kl} adapts the learning rate: add ppo.anneal_lr=false")
    if not ppo.min_learning_rate <= learning_rate <= ppo.max_learning_rate:
        raise ConfigError(
            f"ppo.learning_rate={learning_rate}: with ppo.adaptive_kl it must lie between "
            f"ppo.min_learning_rate={ppo.min_learning_rate} and ppo.max_learning_rate={ppo.max_learning_rate}"
        )


def _check_game(config: Config) -> None:
    """Raise `ConfigError` for a game or a mode that the environment's ids do not name."""
    env = config.root.env
    for key, value in (("game", env.game), ("mode", env.mode)):
        if value and not any(value in env_id for env_id in env.ids.values()):
            raise ConfigError(f"env.{key}={value}: {env.name} has no such choice; env=atari and env=procgen have")


def _check_grid(config: Config) -> None:
    """Raise `ConfigError` unless `grid` has different values in their ranges, of `VMAPPABLE_HYPERPARAMETERS` alone."""
    ranges = {
        f"ppo.{each.name}": each.metadata["range"]
        for each in fields(config.ppo)
        if each.name in VMAPPABLE_HYPERPARAMETERS
    }
    for key, values in (config.root.grid or {}).items():
        if key not in ranges:
            raise ConfigError(
                f"grid has {key}: one program takes several values of {', '.join(ranges)}; use a sweep (-m)"
            )
        numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
        if not values or not numbers or len(set(values)) < len(values):
            raise ConfigError(f"grid: {key}={values} must be a list of numbers, all different, as in [0.1,0.2]")
        for value in values:
            if not ranges[key].holds(value):
                raise ConfigError(f"grid: {key}={value}: {ranges[key].words}")
    if "ppo.gamma" in config.grid and config.ppo.norm_reward:
        raise ConfigError("grid: ppo.norm_reward=true needs one ppo.gamma: use a sweep (-m)")


def _check_players(config: Config) -> None:
    """Raise `ConfigError` for what games of several players do not have, and for what they alone have."""
    root = config.root
    if isinstance(config.algorithm, Rnd) and root.env.atari and root.env.players > 1:
        raise ConfigError(
            f"algorithm=rnd learns to predict the newest frame, and {root.env.name} shows planes of its players behind "
            "the frames: use algorithm=ppo"
        )
    if root.evaluation.every_iterations and root.env.players > 1:
        raise ConfigError(
            f"evaluation.every_iterations={root.evaluation.every_iterations}: against itself a policy's mean return is "
            "zero; `ppo-bench evaluate RUN_DIR against=random` plays checkpoints of games"
        )


def _check_groups(config: Config) -> None:
    """Raise `ConfigError` unless the environments can step in `backend.num_groups` groups."""
    groups, ppo, root = config.num_groups, config.ppo, config.root
    if groups == 1:
        return
    named = f"backend.num_groups={groups}"
    if ppo.num_envs % (groups * root.env.players):
        raise ConfigError(f"{named} does not divide the games of ppo.num_envs={ppo.num_envs}: choose a divisor")
    if ppo.norm_obs or ppo.norm_reward:
        raise ConfigError(
            f"{named}: running statistics are of all environments at once: use 1, or ppo.norm_obs=false and "
            "ppo.norm_reward=false"
        )
    if root.devices > 1:
        raise ConfigError(f"{named}: with devices={root.devices} each device has one group; use 1")


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
