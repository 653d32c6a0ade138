"""Double-buffered sampling: while some of the environments step, the policy acts for others (Petrenko et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from ppo_bench.envs.groups import GroupedVectorEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.shards import Shard, concatenate_shards, slice_shard
from ppo_bench.runners.array_specs import array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.episodes import join_episodes
from ppo_bench.runners.host import EnvRollout, HostRunner, Learner, step_by_step
from ppo_bench.runners.host_envs import HostEnvs


def host_runner(spec: TrainingSpec, learner: Learner[Any]) -> HostRunner:
    """The runner of environments on the host."""
    if not isinstance(spec.env, GroupedVectorEnv):
        envs = HostEnvs(spec)
        return HostRunner(spec, envs, learner, step_by_step(learner, envs, spec.ppo.num_steps))
    groups = EnvGroups(spec, spec.env.groups, learner)
    return HostRunner(spec, groups, learner, groups.rollout)


class EnvGroups:
    """The `Envs` of a training in equal groups; the state has that of each. Random numbers are those of one group."""

    def __init__(self, spec: TrainingSpec, groups: Sequence[Any], learner: Learner[Any]) -> None:
        self._shards = [Shard(k, len(groups)) for k in range(len(groups))]
        self._groups = [
            HostEnvs(replace(spec, env=env, shard=shard)) for env, shard in zip(groups, self._shards, strict=True)
        ]
        self._array_specs, self._num_steps, self._learner = array_specs(spec), spec.ppo.num_steps, learner
        self._num_envs = spec.num_envs

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> list[Arrays]:
        """See `Envs.reset`."""
        return self._map_groups(arrays, lambda group, own: group.reset(own, seed, iteration))

    def load(self, arrays: Arrays) -> list[Arrays]:
        """See `Envs.load`."""
        return self._map_groups(arrays, HostEnvs.load)

    def _map_groups(self, arrays: Arrays, function: Callable[[HostEnvs, Arrays], Arrays]) -> list[Arrays]:
        parts = (slice_shard(self._array_specs, arrays, shard) for shard in self._shards)
        return [function(group, own) for group, own in zip(self._groups, parts, strict=True)]

    def export(self, states: list[Arrays]) -> Arrays:
        """See `Envs.export`."""
        return concatenate_shards(self._array_specs, states)

    def close(self) -> None:
        """See `Envs.close`."""
        with ExitStack() as stack:
            for group in self._groups:
                stack.callback(group.close)

    def rollout(self, learner: Any, states: list[Arrays]) -> tuple[Any, list[Arrays], list[Arrays]]:
        """A `RolloutFunction`: each group steps while the policy acts for the others."""
        parts = self._learner.split(learner, self._shards)
        begun = [group.begin_rollout(state) for group, state in zip(self._groups, states, strict=True)]
        states, rollouts = [state for state, _ in begun], [rollout for _, rollout in begun]
        for t in range(self._num_steps + 1):
            for k, group in enumerate(self._groups):
                if t > 0:
                    states[k], rollouts[k] = group.step_wait(states[k], rollouts[k], t - 1)
                parts[k], actions = self._learner.act(parts[k], t, group.policy_input(states[k]))
                if t < self._num_steps:
                    group.step_async(actions)
        return self._learner.join(learner, parts), states, rollouts

    def end_rollout(self, states: list[Arrays], rollouts: list[Arrays]) -> tuple[list[Arrays], EnvRollout]:
        """See `Envs.end_rollout`."""
        results = [group.end_rollout(*own) for group, *own in zip(self._groups, states, rollouts, strict=True)]
        states, ended = [state for state, _ in results], [result for _, result in results]
        flags = {name: np.concatenate([own.flags[name] for own in ended], 1) for name in ended[0].flags}
        episodes = join_episodes([own.episodes for own in ended], self._num_envs // len(ended))
        masked_fraction = float(np.mean([own.masked_fraction for own in ended]))
        return states, EnvRollout(flags, episodes, masked_fraction)
