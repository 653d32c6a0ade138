"""The environments of a task on any backend, reduced to the components of observations that `env.observe` lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Backend, EnvStep, GraphEnv, PolicyInput, Task, VectorEnv
from ppo_bench.envs.host import VectorEnvWrapper


def make_env(backend: Backend, task: Task) -> VectorEnv | GraphEnv:
    """The environments of `task` on `backend`, reduced to the components that the task observes.

    Raises `ConfigError` if they lack such components, and whatever `backend` raises.
    """
    return select_observations(backend.make(task), task)


def select_observations(env: Any, task: Task) -> Any:
    """`env`, reduced to the components that `task` observes. Closes it and raises `ConfigError` if it lacks them."""
    if not task.observe:
        return env
    space, chosen = env.observation_space, list(task.observe)
    if len(space.shape) != 1 or not 0 <= min(chosen) <= max(chosen) < space.shape[0]:
        env.close()
        raise ConfigError(
            f"env.observe={chosen}: {task.id} has no such components; its observations have the shape {space.shape}"
        )
    space = spaces.Box(space.low[chosen], space.high[chosen], dtype=space.dtype)
    if not isinstance(env, GraphEnv):
        selected = _SelectedAsyncVectorEnv if hasattr(env, "step_async") else _SelectedVectorEnv
        return selected(env, space, chosen)
    if env.components is None:
        env.close()
        raise ConfigError(f"env.observe={chosen}: components of {task.id} cannot be selected on its backend")
    env.observation_space, env.components = space, task.observe
    return env


class _SelectedVectorEnv(VectorEnvWrapper):
    """A `VectorEnv` with some components of the observations of another one."""

    def __init__(self, env: VectorEnv, space: Any, components: list[int]) -> None:
        super().__init__(env)
        self._env: Any
        self._components, self.observation_space = np.array(components), space

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        policy_input = self._env.reset(seeds)
        return policy_input._replace(obs=policy_input.obs[:, self._components])

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        return self._select(self._env.step(actions))

    def _select(self, step: EnvStep) -> EnvStep:
        return step._replace(obs=step.obs[:, self._components])


class _SelectedAsyncVectorEnv(_SelectedVectorEnv):
    """The same of environments that have the halves of a step."""

    def step_async(self, actions: np.ndarray) -> None:
        """See `VectorEnv`."""
        self._env.step_async(actions)

    def step_wait(self) -> EnvStep:
        """See `VectorEnv`."""
        return self._select(self._env.step_wait())
