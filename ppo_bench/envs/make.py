"""The environments of a task on any backend, reduced to the components of observations that `env.observe` lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Backend, EnvStep, GraphEnv, PolicyInput, ResetResult, StepFunction, Task, VectorEnv
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.mathematics.arrays import Array


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
    selected = _SelectedGraphEnv if isinstance(env, GraphEnv) else _SelectedVectorEnv
    return selected(env, spaces.Box(space.low[chosen], space.high[chosen], dtype=space.dtype), chosen)


class _SelectedVectorEnv(VectorEnvWrapper):
    """A `VectorEnv` with some components of the observations of another one."""

    def __init__(self, env: VectorEnv, space: Any, components: list[int]) -> None:
        super().__init__(env)
        self._components, self.observation_space = np.array(components), space

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        policy_input = self._env.reset(seeds)
        return policy_input._replace(obs=policy_input.obs[:, self._components])

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        step = self._env.step(actions)
        return step._replace(obs=step.obs[:, self._components])


@dataclass(frozen=True)
class _SelectedStep:
    """A `ResetResult.step` that returns some components of the observations; equal for equal steps and components."""

    step: StepFunction
    components: tuple[int, ...]
    xp: Any

    def __call__(self, state: Any, actions: Any) -> tuple[Any, EnvStep]:
        state, step = self.step(state, actions)
        final_obs = None if step.final_obs is None else self.columns(step.final_obs)
        return state, step._replace(obs=self.columns(step.obs), final_obs=final_obs)

    def columns(self, obs: Array) -> Array:
        """The components of `obs [N, D]`."""
        return self.xp.stack([obs[:, component] for component in self.components], -1)


class _SelectedGraphEnv(GraphEnv):
    """A `GraphEnv` with some components of the observations of another one."""

    def __init__(self, env: GraphEnv, space: Any, components: list[int]) -> None:
        self._env, self._components = env, tuple(components)
        self.num_envs, self.action_space, self.masks_actions = env.num_envs, env.action_space, env.masks_actions
        self.observation_space = space
        self.short_steps, self.same_step, self.portable = env.short_steps, env.same_step, env.portable

    def __getattr__(self, name: str) -> Any:
        """Optional attributes of the environments, such as `time_limit`."""
        return getattr(self._env, name)

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> ResetResult:
        """See `GraphEnv.reset`."""
        result = self._env.reset(xp, seeds, device)
        step = _SelectedStep(result.step, self._components, xp)
        return result._replace(
            step=step, policy_input=result.policy_input._replace(obs=step.columns(result.policy_input.obs))
        )

    def close(self) -> None:
        """See `GraphEnv.close`."""
        self._env.close()
