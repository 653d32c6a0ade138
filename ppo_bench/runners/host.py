"""The PPO loop in Python: collect a rollout, compute targets, update; the same code for every framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import (
    PERSISTENT_ROLES,
    Array,
    ArrayRole,
    Arrays,
    Tree,
    default_arrays,
    load_arrays,
    select_roles,
)
from ppo_bench.mathematics.shards import Shard
from ppo_bench.runners.array_specs import COUNTERS, array_specs, initial_arrays, zero_params
from ppo_bench.runners.base import Episode, Metrics, TrainingSpec

State = TypeVar("State")
RolloutFunction = Callable[[Any, Any], tuple[Any, Any, Any]]
"""Runs `num_steps` steps from the states of learner and environments, and evaluates the final observations. Returns
both states and the arrays of the rollout."""


class EnvRollout(NamedTuple):
    """The environments' part of a rollout. Observations, actions and values are in the learner's state."""

    flags: Tree
    """Rewards, ends of episodes and masks, `[T, N]`: `UpdateFunctions.learning_arrays`, and possibly others."""
    episodes: list[Episode]
    """Finished episodes, in the order of their ends."""
    masked_fraction: float
    """Share of autoreset steps, which ignore their action."""


class Envs(Protocol[State]):
    """Environments of a training, on the host or on the device, with normalisation. Methods take a state and return a
    new one; the old one must not be reused."""

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> State:
        """Reset all environments with seeds from (seed, iteration), and keep the running statistics in `arrays`."""

    def load(self, arrays: Arrays) -> State:
        """Restore the environments' state from `arrays` without a reset, to replay a recording."""

    def export(self, state: State) -> Arrays:
        """Copies of the state's arrays by name. Environments on the device export their running statistics alone."""

    def close(self) -> None:
        """Close the environments."""

    def end_rollout(self, state: State, rollout: Any) -> tuple[State, EnvRollout]:
        """State after a rollout, and its result."""


class StepEnvs(Envs[State], Protocol[State]):
    """Environments that step together."""

    def policy_input(self, state: State) -> PolicyInput:
        """Inputs of the policy for the next step."""

    def begin_rollout(self, state: State) -> tuple[State, Any]:
        """State before the first step of a rollout, and uninitialised arrays for its steps."""

    def step(self, state: State, rollout: Any, t: int, actions: Any) -> tuple[State, Any]:
        """Step the environments, and write rewards and flags to row `t` of the rollout."""


class Learner(Protocol[State]):
    """A framework's network, algorithm and optimiser. Methods take a state, which includes the rollout buffer, and
    return a new one; the old one must not be reused."""

    execution: Mapping[str, object]
    """Execution settings, which are recorded with every run: device, threads, precision flags."""

    def load(self, arrays: Arrays) -> State:
        """State from a dictionary that has the arrays of `learner_array_specs` and `carry_array_specs`
        (`ppo_bench/runners/array_specs.py`)."""

    def export(self, state: State) -> Arrays:
        """Copies of the arrays of `learner_array_specs` and `carry_array_specs`, by name."""

    def acting_context(self) -> AbstractContextManager[object]:
        """Context manager of a rollout: `torch.inference_mode`, or `jax.default_device`."""

    def begin_rollout(self, state: State, seed: int, iteration: int) -> State:
        """State for the first step of an iteration, with the iteration's action noise drawn."""

    def act(self, state: State, t: int, policy_input: PolicyInput) -> tuple[State, Array]:
        """Sample actions `[N]` or `[N, A]`, on the environments' device. Row `t` of the rollout buffer keeps inputs and
        actions.

        A last call with `t = num_steps` evaluates the final observations: its actions are unused, and the carry is not
        advanced.
        """

    def split(self, state: State, shards: Sequence[Shard]) -> list[State]:
        """State of each of these parts of the environments, after `begin_rollout`; `act` takes them one by one."""

    def join(self, state: State, parts: Sequence[State]) -> State:
        """State after a rollout, from `state` before `split` and its parts."""

    def warmup(self, state: State, flags: Tree) -> State:
        """Update the algorithm's statistics from a warm-up rollout; parameters do not change."""

    def reset_env_statistics(self, state: State) -> State:
        """Reset the algorithm's per-environment statistics, after a reset of the environments."""

    def update(
        self, state: State, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[State, dict[str, float]]:
        """Learn from the rollout: compute the targets, and run all epochs and minibatches. Returns metrics by name.

        `flags` are the arrays named by `UpdateFunctions.learning_arrays`, `[T, N]` each. Metrics are those of the
        targets, the means over minibatches of the losses and of `gradient_norm`, and `learning_rate` if the algorithm
        adapts it.
        """


def step_by_step(learner: Learner[Any], envs: StepEnvs[Any], num_steps: int) -> RolloutFunction:
    """The `RolloutFunction` in which the policy acts, then all environments step."""

    def run_rollout(learner_state: Any, env_state: Any) -> tuple[Any, Any, Any]:
        env_state, rollout = envs.begin_rollout(env_state)
        for t in range(num_steps):
            learner_state, actions = learner.act(learner_state, t, envs.policy_input(env_state))
            env_state, rollout = envs.step(env_state, rollout, t, actions)
        learner_state, _ = learner.act(learner_state, num_steps, envs.policy_input(env_state))
        return learner_state, env_state, rollout

    return run_rollout


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
        rollout: RolloutFunction,
    ) -> None:
        self._rollout = rollout
        self._spec, self._ppo = spec, spec.ppo
        self._envs, self._learner = envs, learner
        self._array_specs = array_specs(spec)
        self.execution = learner.execution

    # --- One iteration ------------------------------------------------------------------------------------------------

    def iterate(self, state: HostState, until: int = 0) -> tuple[HostState, Metrics, list[Episode]]:
        """See `Runner.iterate`. The device waits for the host."""
        iteration = state.iteration + 1
        learning_rate = self._ppo.learning_rate_of(iteration, self._spec.num_iterations)
        learner, envs, rollout = self._collect(state, iteration)
        learner, update_metrics = self._learner.update(learner, rollout.flags, state.seed, iteration, learning_rate)
        measured = {"learning_rate": learning_rate, "masked_fraction": rollout.masked_fraction, **update_metrics}
        metrics = {metric.name: measured[metric.name] for metric in metrics_of(self._spec.algorithm)}
        return HostState(state.seed, iteration, learner, envs), metrics, rollout.episodes

    def _collect(self, state: HostState, iteration: int) -> tuple[Any, Any, EnvRollout]:
        """Run a rollout of `num_steps` steps and evaluate the values of its final observations.

        Returns the states of learner and environments, and the rollout's result.
        """
        learner = self._learner.begin_rollout(state.learner, state.seed, iteration)
        with self._learner.acting_context():
            learner, envs, rollout = self._rollout(learner, state.envs)
        return learner, *self._envs.end_rollout(envs, rollout)

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

    def restart_envs(self, state: HostState) -> HostState:
        """See `Runner.restart_envs`. `envs.episode_start` is then true, so the next step resets the carry."""
        state.envs = self._envs.reset(self._envs.export(state.envs), state.seed, state.iteration)
        state.learner = self._learner.reset_env_statistics(state.learner)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()
