"""Environments that record steps, and environments that replay them: one framework leads, others follow."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ppo_bench.envs.base import EnvStep, PolicyInput, VectorEnv
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.mathematics.shards import SINGLE_SHARD, Shard


def concatenate_steps(parts: Sequence[EnvStep]) -> EnvStep:
    """The steps `[T, N, ...]` of all environments, from those of their parts in order."""
    fields: Any = (None if column[0] is None else np.concatenate(column, 1) for column in zip(*parts, strict=True))
    return EnvStep(*fields)


class RecordingEnv(VectorEnvWrapper):
    """A wrapper that records steps and actions."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self._steps: list[EnvStep] = []
        self._actions: list[np.ndarray] = []

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        step = self._env.step(actions)
        self._steps.append(step.map(np.copy))
        self._actions.append(np.array(actions))
        return step

    def take(self) -> tuple[EnvStep, np.ndarray]:
        """The steps since the last call and the actions that led to them, `[T, N, ...]` each; both are then cleared."""
        recording = EnvStep.stack(self._steps), np.stack(self._actions)
        self._steps, self._actions = [], []
        return recording


class ReplayEnv:
    """A `VectorEnv` that returns recorded steps whatever the actions are, and records these actions."""

    def __init__(self, like: VectorEnv, shard: Shard = SINGLE_SHARD) -> None:
        """Environments `like` these, which are this part of those that were recorded."""
        self._shard = shard
        self.num_envs = like.num_envs
        self.observation_space: Any = like.observation_space
        self.action_space: Any = like.action_space
        self.masks_actions = like.masks_actions
        self._steps: list[EnvStep] = []
        self._actions: list[np.ndarray] = []

    def load(self, steps: EnvStep) -> None:
        """Replay `steps` of all environments, `[T, N, ...]` each, from now on."""
        own = steps.map(lambda array: self._shard.slice(array, 1))
        self._steps = [own.map(itemgetter(t)) for t in range(len(own.reward))]
        self._actions = []

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """Observations of zeros; a follower takes its real state from the leader."""
        return PolicyInput(np.zeros((self.num_envs, *self.observation_space.shape), self.observation_space.dtype))

    def step(self, actions: np.ndarray) -> EnvStep:
        """The next recorded step."""
        self._actions.append(np.array(actions))
        return self._steps[len(self._actions) - 1]

    def actions(self) -> np.ndarray:
        """The actions since `load`, `[T, N]` or `[T, N, A]`."""
        return np.stack(self._actions)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
