"""A wrapper that times environment steps. Between them the policy acts; after the last one of a rollout it learns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ppo_bench.envs.base import Seen, Step, VectorEnv


class TimedEnv:
    """A `VectorEnv` that adds up the duration of its steps, and records the time at which the last step ended."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self.masks_actions = env.masks_actions
        self.stepping_seconds = 0.0
        self.last_ended = 0.0

    def reset(self, seeds: Sequence[int]) -> Seen:
        """See `VectorEnv.reset`."""
        return self._env.reset(seeds)

    def step(self, actions: np.ndarray) -> Step:
        """See `VectorEnv.step`."""
        started = time.perf_counter()
        step = self._env.step(actions)
        self.last_ended = time.perf_counter()
        self.stepping_seconds += self.last_ended - started
        return step

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._env.close()
