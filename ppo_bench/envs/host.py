"""Conversion of any environments to a `VectorEnv`. JAX is imported only if the environments need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppo_bench.envs.base import GraphEnv, Seen, Step, VectorEnv


def on_host(env: VectorEnv | GraphEnv) -> VectorEnv:
    """`env` itself if it is a `VectorEnv`, else a `VectorEnv` that steps the `GraphEnv` `env`."""
    if not isinstance(env, GraphEnv):
        return env
    if env.same_step:
        return TensorsOnHost(env)
    if env.reset_over:
        return InNumpy(env)
    from ppo_bench.envs.jax.host import HostView

    return HostView(env)


class InNumpy:
    """A `VectorEnv` that steps a `GraphEnv` in NumPy."""

    masks_actions = False

    def __init__(self, env: GraphEnv) -> None:
        self.num_envs = env.num_envs
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self._env = env

    def reset(self, seeds: Sequence[int]) -> Seen:
        """See `VectorEnv.reset`."""
        assert self._env.reset_over
        start = self._env.reset_over(np, seeds)
        self._step, self._state = start.step, start.state
        return start.seen

    def step(self, actions: np.ndarray) -> Step:
        """See `VectorEnv.step`."""
        self._state, step = self._step(self._state, actions)
        return step.map(np.copy)  # some of its arrays are those of the state

    def close(self) -> None:
        """Close the environments."""
        self._env.close()


class TensorsOnHost:
    """Environments of tensors with arrays of NumPy: a `VectorEnv`, but with same-step autoreset."""

    masks_actions = False
    same_step = True

    def __init__(self, env: GraphEnv) -> None:
        self.num_envs = env.num_envs
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        self._env = env

    def reset(self, seeds: Sequence[int]) -> Seen:
        """See `VectorEnv.reset`; the environments share the first seed."""
        import torch

        assert self._env.reset_over
        start = self._env.reset_over(torch, seeds)
        self._step, self._state, self._device = start.step, start.state, start.seen.obs.device
        return Seen(_numpy(start.seen.obs))

    def step(self, actions: np.ndarray) -> Step:
        """See `VectorEnv.step`."""
        import torch

        self._state, step = self._step(self._state, torch.from_numpy(np.array(actions)).to(self._device))
        return step.map(_numpy)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()


def _numpy(x: Any) -> np.ndarray:
    array: np.ndarray = x.detach().cpu().numpy().copy()
    return array
