"""Conversion of any environments to a `VectorEnv`, and a wrapper of it. JAX and PyTorch are imported where needed."""

from __future__ import annotations

import contextlib
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
    return NumpyVectorEnv(env) if env.portable else JaxVectorEnv(env)


class VectorEnvWrapper:
    """A `VectorEnv` that does what another one does, except for what a subclass changes."""

    num_envs: int
    masks_actions: bool
    observation_space: Any
    action_space: Any

    def __init__(self, env: VectorEnv) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        """All other attributes of the environments, but for the halves of a step, which a subclass may change."""
        if name in ("step_async", "step_wait"):
            raise AttributeError(name)
        return getattr(self._env, name)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        return self._env.reset(seeds)

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        return self._env.step(actions)

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._env.close()


class NumpyVectorEnv:
    """A `VectorEnv` that steps a `GraphEnv` in NumPy."""

    def __init__(self, env: GraphEnv) -> None:
        self.num_envs, self.masks_actions = env.num_envs, env.masks_actions
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self.players = getattr(env, "players", 1)
        self._env = env

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        self._state, policy_input = self._env.reset(np, seeds)
        return policy_input

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        self._state, step = self._env.step(self._state, actions)
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

        self._state, policy_input = self._env.reset(torch, seeds)
        self._device = policy_input.obs.device
        return policy_input.map(_numpy)

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        import torch

        self._state, step = self._env.step(self._state, torch.from_numpy(np.array(actions)).to(self._device))
        return step.map(_numpy)


def _numpy(x: Any) -> np.ndarray:
    array: np.ndarray = x.detach().cpu().numpy().copy()
    return array


class JaxVectorEnv(NumpyVectorEnv):
    """A `VectorEnv` that steps a `GraphEnv` on the CPU, with one call of a compiled JAX program per step."""

    def __init__(self, env: GraphEnv) -> None:
        import jax

        super().__init__(env)
        self._device = None  # JAX's default device, if its configuration excludes the CPU
        with contextlib.suppress(RuntimeError):
            self._device = jax.devices("cpu")[0]  # also if there is a GPU: a few environments are faster on the CPU
        self._compiled: Any = jax.jit(env.step)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        import jax

        with jax.default_device(self._device):
            self._state, policy_input = self._env.reset(jax.numpy, seeds)
        return policy_input.map(np.array)

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        import jax

        # 64-bit types, because otherwise JAX would round float64 actions to float32.
        with jax.default_device(self._device), jax.enable_x64(True):
            self._state, step = self._compiled(self._state, actions)
        return step.map(np.array)
