"""Warnings about configurations that train without an error, but train badly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import FlattenedBox, is_byte_space
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observation_flattening import dropped_texts
from ppo_bench.networks.convolutions import MIN_IMAGE_SIDE, find_images
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import Auto
from ppo_bench.runners import checkpoint
from ppo_bench.runs.run_config import read_run

EPISODES_BETWEEN_RESTARTS = 10
"""Minimum length of the time between restarts of the environments, in full-length episodes; less cuts many of them."""
MIN_TRAINED_FRACTION = 0.95
"""Minimum share of `total_timesteps` that is trained without a warning."""
MIN_IMAGE_PIXELS = 1000
"""Minimum number of elements of an array, in two dimensions or more, that may be meant as an image."""
MIN_ACTION_SCALE, MAX_ACTION_SCALE = 0.25, 4.0
"""Range of half the distance between action bounds in which a new policy of standard deviation 1 explores well."""


def advice(config: Config, env: VectorEnv | GraphEnv) -> Iterator[str]:
    """Warnings about training `config` on `env`, one line each."""
    if config.ppo.bootstrap_truncated and not config.ppo.mask_resets:
        yield (
            "warning: ppo.mask_resets=false teaches that a final state is worth what the next episode's first is, and "
            "ppo.bootstrap_truncated=true builds on that: make both true, or both false as CleanRL's scripts do"
        )
    if texts := dropped_texts(env.observation_space):
        yield f"warning: the policy does not see the texts in the observations of {config.task.id}: {', '.join(texts)}"
    if load := config.root.checkpoint.load:
        yield from _differences_from_source(config, load)
    trained = config.num_iterations * config.ppo.batch_size
    if trained < MIN_TRAINED_FRACTION * config.root.total_timesteps:
        yield (
            f"warning: total_timesteps={config.root.total_timesteps} is rounded down to {trained:,}: iterations have "
            f"{config.ppo.batch_size:,} steps (ppo.num_envs x ppo.num_steps)"
        )
    yield from _restarts(config, getattr(env, "time_limit", None))
    has_images = is_byte_space(env.observation_space) or find_images(env.observation_space)
    if isinstance(env.action_space, spaces.Box) and config.root.env.id and not config.ppo.norm_obs and not has_images:
        yield (
            f"warning: {config.task.id} has actions of floats, for which CleanRL normalises observations and rewards: "
            "ppo=continuous has its hyperparameters, and checkpoint.every_iterations=50 suits them"
        )
    if not config.root.env.rescale_actions:
        yield from _scale_of_actions(config, env)
    yield from _images_as_vectors(config, env.observation_space, config.network_for(env))


def _images_as_vectors(config: Config, space: Any, network: NetworkSpec) -> Iterator[str]:
    """A line if `network=auto` lays out arrays that may be images as one vector."""
    if not isinstance(config.network, Auto) or len(network.input_shape) > 1:
        return
    images = find_images(space)
    arrays = space.arrays if isinstance(space, FlattenedBox) else [space]
    shapes = [array.shape for array in arrays if array not in images and _may_be_image(array.shape)]
    if shapes:
        yield (
            f"warning: observations of {config.task.id} have arrays {', '.join(map(str, shapes))}, laid out as one "
            "vector for an MLP: network=auto takes bytes [H, W], and bytes or floats [H, W, C], [C, H, W] or several "
            f"frames of these, as images from {MIN_IMAGE_SIDE} pixels; network=impala_cnn takes smaller ones"
        )


def _may_be_image(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and math.prod(shape) >= MIN_IMAGE_PIXELS


def _differences_from_source(config: Config, load: str) -> Iterator[str]:
    """A line with the keys that decide how a run learns and that differ in the run of `checkpoint.load`."""
    try:
        before = read_run(checkpoint.run_of(checkpoint.find(Path(load))))["config"]
    except ConfigError:  # a checkpoint that was copied without its run
        return
    unlike = [
        f"{group}.{key}={value}"
        for group in ("network", "algorithm", "ppo")
        for key, value in sorted((before.get(group) or {}).items())
        if config.resolved[group].get(key, value) != value
    ]
    if unlike:
        yield f"note: the run of checkpoint.load={load} had {', '.join(unlike)}"


def _restarts(config: Config, time_limit: int | None) -> Iterator[str]:
    every, num_steps = config.root.checkpoint.every_iterations, config.ppo.num_steps
    window = every * num_steps
    if time_limit and config.num_iterations > every and window < EPISODES_BETWEEN_RESTARTS * time_limit:
        yield (
            f"warning: checkpoint.every_iterations={every} restarts the environments every {window:,} steps, "
            f"{window / time_limit:.1f} times the limit of an episode ({time_limit:,}): episodes in progress there, "
            "long ones more often, are cut and not counted"
        )


def _scale_of_actions(config: Config, env: VectorEnv | GraphEnv) -> Iterator[str]:
    space = env.action_space
    if not hasattr(space, "low") or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return
    halves, middles = (space.high - space.low) / 2, np.abs(space.high + space.low) / 2
    if halves.min() < MIN_ACTION_SCALE or halves.max() > MAX_ACTION_SCALE or (middles > halves).any():
        yield (
            f"warning: actions of {config.task.id} lie between {space.low.min():g} and {space.high.max():g}, and a new "
            "policy tries about -1 to 1: env.rescale_actions=true stretches these to the bounds"
        )
