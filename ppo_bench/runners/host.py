"""PPO iterations that the host leads: collect, targets, update; the same code for every framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.mathematics.arrays import KEPT, Arrays, Kind, filled, of_kinds, restored
from ppo_bench.runners.base import Episode, Metrics, Problem
from ppo_bench.runners.declared import COUNTERS, declared_arrays, initial_arrays, of_zeros
from ppo_bench.runners.envs import Envs, Rollout
from ppo_bench.runners.learner import Learner

Play = Callable[[Any, Any], tuple[Any, Any, Any]]
"""See `HostRunner._steps`."""


@dataclass
class HostState:
    """State of a training between two iterations."""

    seed: int
    iteration: int
    """Number of iterations done."""
    learner: Any
    envs: Any
    """State of the environments and running statistics."""


class HostRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(
        self, problem: Problem, envs: Envs[Any], learner: Learner[Any], record: Callable[[Play], Play] | None = None
    ) -> None:
        """`record` transforms the function that plays a rollout, for example to a CUDA graph."""
        self._play: Play = record(self._steps) if record else self._steps
        self._problem, self._ppo = problem, problem.ppo
        self._envs, self._learner = envs, learner
        self._declared = declared_arrays(problem)
        self.execution = learner.execution

    # --- One iteration ------------------------------------------------------------------------------------------------

    def step(self, state: HostState) -> tuple[HostState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        iteration = state.iteration + 1
        learning_rate = self._ppo.learning_rate_of(iteration, self._problem.num_iterations)
        learner, envs, rollout = self._collect(state, iteration)
        learner, learnt = self._learner.update(learner, rollout.flags, state.seed, iteration, learning_rate)
        measured = {"learning_rate": learning_rate, "masked_fraction": rollout.masked_fraction, **learnt}
        metrics = {
            metric.name: measured[metric.name] for metric in metrics_of(self._problem.algorithm, self._problem.network)
        }
        return HostState(state.seed, iteration, learner, envs), metrics, rollout.episodes

    def _collect(self, state: HostState, iteration: int) -> tuple[Any, Any, Rollout]:
        """Run a rollout of `num_steps` steps and evaluate the values of its final observations.

        Returns the states of learner and environments, and the rollout's result.
        """
        learner = self._learner.begin(state.learner, state.seed, iteration)
        with self._learner.acting():
            learner, envs, rollout = self._play(learner, state.envs)
        return learner, *self._envs.end(envs, rollout)

    def _steps(self, learner: Any, envs: Any) -> tuple[Any, Any, Any]:
        """The states of learner and environments after the steps of a rollout, and what `Envs.end` takes."""
        envs, rollout = self._envs.begin(envs)
        for t in range(self._ppo.num_steps):
            learner, actions = self._learner.act(learner, t, self._envs.seen(envs))
            envs, rollout = self._envs.step(envs, rollout, t, actions)
        learner, _ = self._learner.act(learner, self._ppo.num_steps, self._envs.seen(envs))
        return learner, envs, rollout

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def init(self, seed: int) -> HostState:
        """See `Runner.init`."""
        begun, warm_up = initial_arrays(self._problem, seed), self._problem.algorithm.warm_up
        if not warm_up:
            return self.restore(begun)
        zeros = of_zeros(self._problem)
        state = self.restore(begun | zeros)
        for iteration in range(-warm_up, 0):
            learner, envs, rollout = self._collect(state, iteration)
            state = HostState(seed, 0, self._learner.warmed(learner, rollout.flags), envs)
        return self.restore(self.export(state) | {name: begun[name] for name in zeros})

    def export(self, state: HostState) -> Arrays:
        """See `Runner.export`."""
        counters = {"seed": np.array(state.seed), "iteration": np.array(state.iteration)}
        return self._learner.export(state.learner) | counters | self._envs.export(state.envs)

    def restore(self, arrays: Arrays, carried: bool = False) -> HostState:
        """See `Runner.restore`."""
        state = restored(of_kinds(self._declared, *KEPT), arrays, whole=True)
        seed, iteration = (int(state[counter.name]) for counter in COUNTERS)
        stands = of_kinds(self._declared, Kind.ENVIRONMENT)
        state |= restored(stands, arrays) if carried else filled(stands)
        learner = self._learner.load(state)
        envs = self._envs.own(state) if carried else self._envs.start(state, seed, iteration)
        return HostState(seed, iteration, learner, envs)

    def in_progress(self, state: HostState) -> np.ndarray:
        """See `Runner.in_progress`."""
        return self._envs.lengths(state.envs)

    def restart(self, state: HostState, iteration: int) -> HostState:
        """See `Runner.restart`. The network's carry resets in the next step, since `envs.start` is true everywhere."""
        state.envs = self._envs.start(self._envs.export(state.envs), state.seed, iteration)
        state.learner = self._learner.restart(state.learner)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()
