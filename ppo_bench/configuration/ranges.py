"""Ranges of a configuration's values."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.precision import PRECISIONS


def check_values(config: Config) -> None:
    """Raise `ConfigError` for the first value that is out of range."""
    root, ppo = config.root, config.ppo
    evaluated = root.evaluation.every_iterations
    unit, positive, natural = "must lie between 0 and 1", "must be above 0", "must be at least 1"
    checks: list[tuple[str, Any, bool, str]] = [
        ("seed", root.seed, 0 <= root.seed < 2**31, f"must lie between 0 and {2**31 - 1}"),
        ("num_seeds", root.num_seeds, root.num_seeds >= 1, natural),
        (
            "seed + num_seeds",
            root.seed + root.num_seeds,
            root.seed + root.num_seeds <= 2**31,
            f"must be at most {2**31}",
        ),
        ("precision", root.precision, root.precision in PRECISIONS, f"choose one of {', '.join(PRECISIONS)}"),
        (
            "device",
            root.device,
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", root.device) is not None,
            "choose auto, cpu, cuda or cuda:<i>",
        ),
        ("name", root.name, _is_inside(root.name), "must be a relative path without '..'"),
        ("env.game", root.env.game, root.env.game is None or root.env.game.strip() != "", "must name a game"),
        ("env.name", root.env.name, root.env.name.strip() != "", "must not be empty"),
        ("env.id", root.env.id, root.env.id is None or root.env.id.strip() != "", "must not be empty"),
        ("outputs", root.outputs, root.outputs.strip() != "", "must name a folder"),
        (
            "checkpoint.every_iterations",
            root.checkpoint.every_iterations,
            root.checkpoint.every_iterations >= 1,
            natural,
        ),
        ("checkpoint.keep", root.checkpoint.keep, root.checkpoint.keep >= 1, natural),
        ("video.every_episodes", root.video.every_episodes, root.video.every_episodes >= 0, "must not be negative"),
        ("opponents.pool_size", config.opponents.pool_size, config.opponents.pool_size >= 0, "must not be negative"),
        ("evaluation.every_iterations", evaluated, evaluated >= 0, "must not be negative"),
        ("evaluation.episodes", root.evaluation.episodes, root.evaluation.episodes >= 1, natural),
        ("rating.games", root.rating.games, root.rating.games >= 0, "must not be negative"),
        ("rating.opponents", root.rating.opponents, root.rating.opponents >= 1, natural),
        (
            "opponents.every_iterations",
            config.opponents.every_iterations,
            config.opponents.every_iterations >= 1,
            natural,
        ),
        ("env.players", root.env.players, root.env.players >= 1, natural),
        ("devices", root.devices, root.devices >= 1, natural),
        ("ppo.shards", ppo.shards, ppo.shards >= 1, natural),
        ("ppo.num_envs", ppo.num_envs, ppo.num_envs >= 1, natural),
        ("ppo.num_steps", ppo.num_steps, ppo.num_steps >= 1, natural),
        ("ppo.update_epochs", ppo.update_epochs, ppo.update_epochs >= 1, natural),
        ("ppo.num_minibatches", ppo.num_minibatches, ppo.num_minibatches >= 1, natural),
        ("ppo.learning_rate", ppo.learning_rate, _positive(ppo.learning_rate), positive),
        ("ppo.adam_eps", ppo.adam_eps, _positive(ppo.adam_eps), positive),
        ("ppo.gamma", ppo.gamma, 0 <= ppo.gamma <= 1, unit),
        ("ppo.gae_lambda", ppo.gae_lambda, 0 <= ppo.gae_lambda <= 1, unit),
        ("ppo.clip_coef", ppo.clip_coef, _positive(ppo.clip_coef), positive),
        ("ppo.ent_coef", ppo.ent_coef, 0 <= ppo.ent_coef < math.inf, "must not be negative"),
        (
            "ppo.final_learning_rate",
            ppo.final_learning_rate,
            0 <= ppo.final_learning_rate < math.inf,
            "must not be negative",
        ),
        ("ppo.weight_decay", ppo.weight_decay, 0 <= ppo.weight_decay < math.inf, "must not be negative"),
        (
            "ppo.final_ent_coef",
            ppo.final_ent_coef,
            ppo.final_ent_coef is None or 0 <= ppo.final_ent_coef < math.inf,
            "must not be negative, or null",
        ),
        (
            "ppo.anneal_timesteps",
            ppo.anneal_timesteps,
            ppo.anneal_timesteps is None or ppo.anneal_timesteps >= 1,
            f"{natural}, or null",
        ),
        ("ppo.vf_coef", ppo.vf_coef, 0 <= ppo.vf_coef < math.inf, "must not be negative"),
        ("ppo.max_grad_norm", ppo.max_grad_norm, _positive(ppo.max_grad_norm), positive),
        ("ppo.target_kl", ppo.target_kl, ppo.target_kl is None or _positive(ppo.target_kl), f"{positive}, or null"),
        ("ppo.obs_clip", ppo.obs_clip, _positive(ppo.obs_clip), positive),
        ("ppo.reward_clip", ppo.reward_clip, _positive(ppo.reward_clip), positive),
    ]
    if root.env.atari:
        checks.append(("env.atari.frames", root.env.atari.frames, root.env.atari.frames >= 1, natural))
        sticky = root.env.atari.repeat_action_probability
        checks.append(("env.atari.repeat_action_probability", sticky, 0 <= sticky < 1, "between 0 and 1"))
    for key, value, good, rule in checks:
        if not good:
            raise ConfigError(f"{key}={value}: {rule}")
    if ppo.batch_size % ppo.num_minibatches:
        raise ConfigError(
            f"ppo.num_minibatches={ppo.num_minibatches} does not divide the batch of ppo.num_envs x ppo.num_steps = "
            f"{ppo.batch_size}: choose a divisor"
        )
    _check_devices(config)
    if config.opponents.pool_size and root.env.players == 1:
        raise ConfigError(
            f"opponents.pool_size={config.opponents.pool_size}: {root.env.name} is for one player, and only games have "
            "opponents: use opponents=none"
        )
    if evaluated and root.env.players > 1:
        raise ConfigError(
            f"evaluation.every_iterations={evaluated}: against itself a policy's mean return is zero; in games "
            "checkpoints are rated by their matches (rating.games)"
        )
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
    if root.num_seeds > 1:
        raise ConfigError(
            f"devices={root.devices}: num_seeds={root.num_seeds} divides the devices among seeds; use num_seeds=1"
        )


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _is_inside(name: str) -> bool:
    path = Path(name)
    return name.strip() != "" and not path.is_absolute() and ".." not in path.parts
