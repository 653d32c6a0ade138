"""Environments in equal groups: one steps while the policy acts for another (ppo_bench/runners/env_groups.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ppo_bench.envs.base import Backend, EnvStep, GraphEnv, PolicyInput, Task, VectorEnv
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.envs.make import make_env


def make_grouped_env(backend: Backend, task: Task) -> VectorEnv | GraphEnv:
    """The environments of `task`, in groups if `backend.num_groups` is above 1; see `make_env`."""
    count = getattr(backend, "num_groups", 1)
    if count == 1:
        return make_env(backend, task)
    each = replace(task, num_envs=task.num_envs // count)
    return GroupedVectorEnv([make_env(backend, each) for _ in range(count)])


class GroupedVectorEnv(VectorEnvWrapper):
    """A `VectorEnv` of the environments of several, in order. It steps them at the same time."""

    def __init__(self, groups: Sequence[Any]) -> None:
        super().__init__(groups[0])
        self.groups = groups
        self.num_envs = sum(group.num_envs for group in groups)

    @property
    def episode_info(self) -> dict[str, np.ndarray]:
        """See `VectorEnv`."""
        infos = [group.episode_info for group in self.groups]
        missing = np.full(self.groups[0].num_envs, np.nan)
        names = dict.fromkeys(name for info in infos for name in info)
        return {name: np.concatenate([info.get(name, missing) for info in infos]) for name in names}

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        each = len(seeds) // len(self.groups)
        inputs = [group.reset(seeds[k * each :][:each]) for k, group in enumerate(self.groups)]
        return PolicyInput(*_concatenate(inputs))

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        for group, own in zip(self.groups, np.split(actions, len(self.groups)), strict=True):
            group.step_async(own)
        return EnvStep(*_concatenate([group.step_wait() for group in self.groups]))

    def close(self) -> None:
        """See `VectorEnv.close`."""
        for group in self.groups:
            group.close()


def _concatenate(parts: Sequence[Any]) -> Iterable[Any]:
    """Fields of named tuples, joined along the environments; None where the first has none."""
    return (None if fields[0] is None else np.concatenate(fields) for fields in zip(*parts, strict=True))
