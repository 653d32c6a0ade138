"""Masks of legal choices that a gymnasium environment gives in `info`, in its observations, or by a method."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.spaces import get_num_choices

MASK = "action_mask"
"""The key of the mask in `info` or in dictionary observations: an array, or a tuple with an array per component."""
METHOD = "action_masks"
"""The method that returns the mask, as in sb3-contrib."""


class ActionMasks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that puts the mask into `info`, wherever the environment has it.

    It is alone in a tuple there, since gymnasium would broadcast the arrays of N environments to the shape of the first
    one. It is None where the environment gives none, and at the end of an episode, where no action follows. A mask
    among the observations is taken out of them.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._keys: list[str] = []
        if _is_mask_observed(env):
            self._keys = [key for key in env.observation_space if key != MASK] or [MASK]
            parts: Any = spaces.Dict({key: env.observation_space[key] for key in self._keys})
            self.observation_space = self._without_mask(parts.spaces) if len(self._keys) == 1 else parts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._without_mask(obs), info | {MASK: (find_action_mask(self.env, obs, info),)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        mask = None if terminated or truncated else find_action_mask(self.env, obs, info)
        return self._without_mask(obs), reward, terminated, truncated, info | {MASK: (mask,)}

    def _without_mask(self, obs: Any) -> Any:
        """The other parts of dictionary observations; a single one alone."""
        if not self._keys:
            return obs
        return obs[self._keys[0]] if len(self._keys) == 1 else {key: obs[key] for key in self._keys}


def find_action_mask(env: Any, obs: Any, info: dict[str, Any]) -> Any:
    """The mask that `env` gives: in `info`, else in the observation, else by its method; None if it gives none."""
    if MASK in info:
        return info[MASK]
    if _is_mask_observed(env):
        return obs[MASK]
    return env.get_wrapper_attr(METHOD)() if _has_mask_method(env) else None


def flatten_action_mask(mask: Any, action_space: Any) -> np.ndarray:
    """The flags `[A]` of a mask, or of a tuple of masks. Raises `ValueError` if they do not fit the choices."""
    if isinstance(action_space, spaces.Box):
        raise ValueError(f"{MASK!r} is for actions that are choices, and its actions are floats")
    if mask is None:
        raise ValueError(f"it gives no {MASK!r}, which it gave at first: give it at each reset and step")
    flags, choices = _flatten_mask(mask), int(get_num_choices(action_space).sum())
    if len(flags) != choices:
        raise ValueError(f"its {MASK!r} has {len(flags)} entries, and its actions {choices} choices")
    if not ((flags == 0) | (flags == 1)).all():
        raise ValueError(f"its {MASK!r} has other values than 0 and 1: {flags.tolist()}")
    return flags.astype(bool)


def _is_mask_observed(env: Any) -> bool:
    """Whether a part of the observations is a mask. If actions are floats, it is an ordinary part."""
    space = env.observation_space
    return isinstance(space, spaces.Dict) and MASK in space.spaces and not isinstance(env.action_space, spaces.Box)


def _has_mask_method(env: Any) -> bool:
    return env.has_wrapper_attr(METHOD) and callable(env.get_wrapper_attr(METHOD))


def _flatten_mask(mask: Any) -> np.ndarray:
    return np.concatenate([_flatten_mask(part) for part in mask]) if isinstance(mask, tuple | list) else np.ravel(mask)
