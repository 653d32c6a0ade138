"""Several seeds trained by one JAX program: that of one seed, mapped over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.envs.base import GraphEnv
from ppo_bench.runners.base import Arrays, Problem
from ppo_bench.runners.episodes import Totals
from ppo_bench.runners.jax_graph import GraphEnvs, GraphState, Iterate, JaxGraphRunner, reported
from ppo_bench.runners.jax_learning import Learner
from ppo_bench.runners.seeds import Measured


@dataclass
class SeedsState:
    """Everything that changes from one iteration to the next."""

    seeds: list[int]
    iteration: int
    """Iterations done."""
    learners: Learner
    """Those of all seeds, stacked: arrays `[S, ...]`."""
    envs: GraphEnvs
    """Those of all seeds, stacked."""
    totals: list[Totals]
    iterate: Iterate
    """Of one seed; see `GraphState`."""
    ahead: list[Measured] = field(default_factory=list)
    """See `GraphState`."""


class JaxSeedsRunner:
    """A `SeedsRunner`; see ppo_bench/runners/seeds.py. Environments begin, end and are restored seed by seed."""

    def __init__(self, problem: Problem, env: GraphEnv, iterations_per_call: int) -> None:
        self._one = JaxGraphRunner(problem, env, iterations_per_call)
        self.execution = self._one.execution
        self._compiled: dict[Iterate, Iterate] = {}

    def step(self, state: SeedsState) -> tuple[SeedsState, Measured]:
        """See `SeedsRunner.step`."""
        if not state.ahead:
            self._call(state)
        state.iteration += 1
        return state, state.ahead.pop(0)

    def _call(self, state: SeedsState) -> None:
        learning = self._one.learning
        rates, counters = self._one.next_call(state.iteration)
        with jax.default_device(learning.device):
            state.learners, state.envs, *on_device = self._iterate(state.iterate)(
                state.learners, state.envs, np.array(state.seeds, np.int32), *counters
            )
        outcomes, measured = jax.device_get(on_device)
        reports = []
        for k, totals in enumerate(state.totals):
            own_outcomes, own_measured = jax.tree.map(lambda array, k=k: array[k], (outcomes, measured))
            state.totals[k], report = reported(own_outcomes, own_measured, rates, totals)
            reports.append(report)
        state.ahead = [list(of_all) for of_all in zip(*reports, strict=True)]

    def _iterate(self, one: Iterate) -> Iterate:
        """The compiled iteration of all seeds, from that of one."""
        if one not in self._compiled:
            mapped = jax.vmap(one, in_axes=(0, 0, 0, None, None, None))
            self._compiled[one] = jax.jit(mapped, donate_argnums=(0, 1))
        return self._compiled[one]

    def init(self, seeds: Sequence[int]) -> SeedsState:
        """See `SeedsRunner.init`."""
        return self._stacked([self._one.init(seed) for seed in seeds])

    def export(self, state: SeedsState) -> list[Arrays]:
        """See `SeedsRunner.export`."""
        return [self._one.export(one) for one in self._apart(state)]

    def restore(self, arrays: Sequence[Arrays]) -> SeedsState:
        """See `SeedsRunner.restore`."""
        return self._stacked([self._one.restore(own) for own in arrays])

    def restart(self, state: SeedsState, iteration: int) -> SeedsState:
        """See `SeedsRunner.restart`."""
        return self._stacked([self._one.restart(one, iteration) for one in self._apart(state)])

    def close(self) -> None:
        """See `SeedsRunner.close`."""
        self._one.close()

    def _stacked(self, states: Sequence[GraphState]) -> SeedsState:
        first = states[0]

        def stack(*trees: Any) -> Any:
            with jax.enable_x64(True):  # as the environments' arrays are
                stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)
            return jax.device_put(stacked, self._one.learning.device)

        return SeedsState(
            seeds=[state.seed for state in states],
            iteration=first.iteration,
            learners=stack(*(state.learner for state in states)),
            envs=stack(*(state.envs for state in states)),
            totals=[state.totals for state in states],
            iterate=first.iterate,
        )

    @staticmethod
    def _apart(state: SeedsState) -> list[GraphState]:
        """The state of each seed."""
        assert not state.ahead, "the program has run ahead of the iteration that is asked for"

        def own(k: int) -> GraphState:
            with jax.enable_x64(True):
                learner, envs = jax.tree.map(lambda array: array[k], (state.learners, state.envs))
            return GraphState(state.seeds[k], state.iteration, learner, envs, state.totals[k], state.iterate)

        return [own(k) for k in range(len(state.seeds))]
