"""Spaces of observations and actions: which are supported, and the number of choices."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.common.flattened import can_flatten, find_leaves
from ppo_bench.envs.base import Task


def get_num_choices(action_space: spaces.Space[Any]) -> np.ndarray:
    """Number of choices of each component of a space of integers, `[K]`."""
    if isinstance(action_space, spaces.Discrete):
        return np.array([action_space.n])
    return np.asarray(getattr(action_space, "nvec", np.full(action_space.shape or (), 2)))


def require_supported_spaces(task: Task, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """Raise `ConfigError` unless observations are one array, and actions are integers or a vector of floats."""
    if not isinstance(observation_space, spaces.Box):
        kind = type(observation_space).__name__
        parts = [name for name, part in find_leaves(observation_space) if name and not can_flatten(part)]
        named = f", and {', '.join(parts)} cannot be laid out as one" if parts else ""
        raise ConfigError(
            f"{task.id}: observations of kind {kind} are not supported here, only those that can be laid out as one "
            f"array{named}"
        )
    if 0 in observation_space.shape:
        raise ConfigError(f"{task.id}: observations of shape {observation_space.shape} hold no number")
    kinds = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
    vector = isinstance(action_space, kinds) and len(action_space.shape or ()) == 1
    floats = isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating)
    starts = np.atleast_1d(getattr(action_space, "start", 0))
    if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete) and starts.any():
        raise ConfigError(f"{task.id}: discrete actions must start at 0, not at {starts[starts != 0][0]}")
    if not isinstance(action_space, spaces.Discrete) and not (
        vector and (floats or not isinstance(action_space, spaces.Box))
    ):
        text = one_line(action_space)
        raise ConfigError(
            f"{task.id}: actions {text} are not supported, only Discrete, MultiDiscrete and MultiBinary of one "
            "dimension, and vectors of floats"
        )
