"""PPO iterations that the host leads: collect, targets, update; the same code for every framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.mathematics.arrays import PERSISTENT_ROLES, ArrayRole, Arrays, default_arrays, load_arrays, select_roles
from ppo_bench.runners.array_specs import COUNTERS, array_specs, initial_arrays, zero_params
from ppo_bench.runners.base import Episode, Metrics, TrainingSpec
from ppo_bench.runners.envs import Envs, Rollout
from ppo_bench.runners.learner import Learner

RolloutFunction = Callable[[Any, Any], tuple[Any, Any, Any]]
"""See `HostRunner._rollout`."""


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
        self,
        spec: TrainingSpec,
        envs: Envs[Any],
        learner: Learner[Any],
        capture: Callable[[RolloutFunction], RolloutFunction] | None = None,
    ) -> None:
        """`capture` transforms the function that runs a rollout, for example to a CUDA graph."""
        self._run_rollout: RolloutFunction = capture(self._rollout) if capture else self._rollout
        self._spec, self._ppo = spec, spec.ppo
        self._envs, self._learner = envs, learner
        self._array_specs = array_specs(spec)
        self.execution = learner.execution

    # --- One iteration ------------------------------------------------------------------------------------------------

    def iterate(self, state: HostState) -> tuple[HostState, Metrics, list[Episode]]:
        """See `Runner.iterate`."""
        iteration = state.iteration + 1
        learning_rate = self._ppo.learning_rate_of(iteration, self._spec.num_iterations)
        learner, envs, rollout = self._collect(state, iteration)
        learner, update_metrics = self._learner.update(learner, rollout.flags, state.seed, iteration, learning_rate)
        measured = {"learning_rate": learning_rate, "masked_fraction": rollout.masked_fraction, **update_metrics}
        metrics = {
            metric.name: measured[metric.name] for metric in metrics_of(self._spec.algorithm, self._spec.network)
        }
        return HostState(state.seed, iteration, learner, envs), metrics, rollout.episodes

    def _collect(self, state: HostState, iteration: int) -> tuple[Any, Any, Rollout]:
        """Run a rollout of `num_steps` steps and evaluate the values of its final observations.

        Returns the states of learner and environments, and the rollout's result.
        """
        learner = self._learner.begin_rollout(state.learner, state.seed, iteration)
        with self._learner.acting_context():
            learner, envs, rollout = self._run_rollout(learner, state.envs)
        return learner, *self._envs.end_rollout(envs, rollout)

    def _rollout(self, learner: Any, envs: Any) -> tuple[Any, Any, Any]:
        """The states of learner and environments after the steps of a rollout, and what `Envs.end_rollout` takes."""
        envs, rollout = self._envs.begin_rollout(envs)
        for t in range(self._ppo.num_steps):
            learner, actions = self._learner.act(learner, t, self._envs.policy_input(envs))
            envs, rollout = self._envs.step(envs, rollout, t, actions)
        learner, _ = self._learner.act(learner, self._ppo.num_steps, self._envs.policy_input(envs))
        return learner, envs, rollout

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def init(self, seed: int) -> HostState:
        """See `Runner.init`."""
        initial, num_rollouts = initial_arrays(self._spec, seed), self._spec.algorithm.num_warmup_rollouts
        if not num_rollouts:
            return self.restore(initial)
        zeros = zero_params(self._spec)
        state = self.restore(initial | zeros)
        for iteration in range(-num_rollouts, 0):
            learner, envs, rollout = self._collect(state, iteration)
            state = HostState(seed, 0, self._learner.warmup(learner, rollout.flags), envs)
        return self.restore(self.export(state) | {name: initial[name] for name in zeros})

    def export(self, state: HostState) -> Arrays:
        """See `Runner.export`."""
        counters = {"seed": np.array(state.seed), "iteration": np.array(state.iteration)}
        return self._learner.export(state.learner) | counters | self._envs.export(state.envs)

    def restore(self, arrays: Arrays, restore_envs: bool = False) -> HostState:
        """See `Runner.restore`."""
        state = load_arrays(select_roles(self._array_specs, *PERSISTENT_ROLES), arrays, strict=True)
        seed, iteration = (int(state[counter.name]) for counter in COUNTERS)
        env_specs = select_roles(self._array_specs, ArrayRole.ENVIRONMENT)
        state |= load_arrays(env_specs, arrays) if restore_envs else default_arrays(env_specs)
        learner = self._learner.load(state)
        envs = self._envs.load(state) if restore_envs else self._envs.reset(state, seed, iteration)
        return HostState(seed, iteration, learner, envs)

    def episode_lengths(self, state: HostState) -> np.ndarray:
        """See `Runner.episode_lengths`."""
        return self._envs.lengths(state.envs)

    def restart_envs(self, state: HostState, iteration: int) -> HostState:
        """See `Runner.restart_envs`. The network's carry resets in the next step, since `envs.start` is true
        everywhere."""
        state.envs = self._envs.reset(self._envs.export(state.envs), state.seed, iteration)
        state.learner = self._learner.reset_env_statistics(state.learner)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()
