"""A `VectorEnv` on the host that steps the environments of a JAX program, for the checker, evaluation and tests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ppo_bench.envs.base import EnvStep, GraphEnv, PolicyInput


class JaxVectorEnv:
    """A `VectorEnv` that steps a `GraphEnv` on the CPU, with one call of a compiled program per step."""

    def __init__(self, env: GraphEnv) -> None:
        self.num_envs = env.num_envs
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self.masks_actions = env.masks_actions
        self.players = getattr(env, "players", 1)
        self._env = env
        self._device = None  # JAX's default device, if its configuration excludes the CPU
        with contextlib.suppress(RuntimeError):
            self._device = jax.devices("cpu")[0]  # also if there is a GPU: a few environments are faster on the CPU
        self._compiled: Any = None

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        with jax.default_device(self._device):
            result = self._env.reset(seeds)
        if self._compiled is None or self._compiled[0] != result.step:
            self._compiled = result.step, jax.jit(result.step)
        self._state = result.state
        return result.policy_input.map(np.array)

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        # 64-bit types, because otherwise JAX would round float64 actions to float32.
        with jax.default_device(self._device), jax.enable_x64(True):
            self._state, step = self._compiled[1](self._state, actions)
        return step.map(np.array)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
