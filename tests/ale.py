"""Atari games in tests: their emulator, their lives, and random play."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ppo_bench.envs.base import EnvStep


def lives(env: gymnasium.Env[Any, Any]) -> int:
    """The lives that a game has left."""
    return int(ale(env).lives())


def ale(env: gymnasium.Env[Any, Any]) -> Any:
    """The emulator of a game."""
    return env.unwrapped.ale  # type: ignore[attr-defined]


def copy(step: EnvStep) -> EnvStep:
    """The step with arrays of its own, which the environment does not write again."""
    return step.map(np.copy)


def play_to_the_end(env: gymnasium.Env[Any, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Random play to the end of an episode: its last two observations and its last info."""
    rng = np.random.default_rng(1)
    obs = np.empty(0)
    while True:
        before = obs
        obs, _, terminated, truncated, info = env.step(rng.integers(4))
        if terminated or truncated:
            return before, obs, info
