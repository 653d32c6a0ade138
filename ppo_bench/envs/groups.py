"""Environments in equal groups: one steps while the policy acts for another (ppo_bench/runners/env_groups.py)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Backend, Task
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.envs.make import make_env


class GroupedVectorEnv(VectorEnvWrapper):
    """Environments that are stepped group by group. Its attributes are those of the first group."""

    def __init__(self, groups: Sequence[Any]) -> None:
        super().__init__(groups[0])
        self.groups, self.num_envs = groups, sum(group.num_envs for group in groups)

    def close(self) -> None:
        """See `VectorEnv.close`."""
        with ExitStack() as stack:
            for group in self.groups:
                stack.callback(group.close)


def make_grouped_env(backend: Backend, task: Task, count: int) -> GroupedVectorEnv:
    """The environments of `task` in `count` groups. Raises `ConfigError` if they cannot step so; see `make_env`."""
    env = GroupedVectorEnv([make_env(backend, replace(task, num_envs=task.num_envs // count)) for _ in range(count)])
    if not hasattr(env.groups[0], "step_async"):
        env.close()
        raise ConfigError(f"backend.num_groups={count}: these environments have no step_async and step_wait; use 1")
    return env
