"""Conversion of any environments to a `VectorEnv`. JAX is imported only if the environments need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppo_bench.envs.base import EnvStep, GraphEnv, PolicyInput, VectorEnv


def to_vector_env(env: VectorEnv | GraphEnv) -> VectorEnv:
    """`env` itself if it is a `VectorEnv`, else a `VectorEnv` that steps the `GraphEnv` `env`."""
    if not isinstance(env, GraphEnv):
        return env
    if env.same_step:
        return TensorVectorEnv(env)
    if env.reset_with_xp:
        return NumpyVectorEnv(env)
    from ppo_bench.envs.jax.host import JaxVectorEnv

    return JaxVectorEnv(env)


class NumpyVectorEnv:
    """A `VectorEnv` that steps a `GraphEnv` in NumPy."""

    masks_actions = False

    def __init__(self, env: GraphEnv) -> None:
        self.num_envs = env.num_envs
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self._env = env

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        assert self._env.reset_with_xp
        result = self._env.reset_with_xp(np, seeds)
        self._step, self._state = result.step, result.state
        return result.policy_input

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        self._state, step = self._step(self._state, actions)
        return step.map(np.copy)  # some of its arrays are those of the state

    def close(self) -> None:
        """Close the environments."""
        self._env.close()


class TensorVectorEnv(NumpyVectorEnv):
    """Environments of tensors with arrays of NumPy: a `VectorEnv`, but with same-step autoreset."""

    same_step = True

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`; the environments share the first seed."""
        import torch

        assert self._env.reset_with_xp
        result = self._env.reset_with_xp(torch, seeds)
        self._step, self._state, self._device = result.step, result.state, result.policy_input.obs.device
        return PolicyInput(_numpy(result.policy_input.obs))

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        import torch

        self._state, step = self._step(self._state, torch.from_numpy(np.array(actions)).to(self._device))
        return step.map(_numpy)


def _numpy(x: Any) -> np.ndarray:
    array: np.ndarray = x.detach().cpu().numpy().copy()
    return array
