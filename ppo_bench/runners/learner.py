"""Interface of a framework's policy and update: `Learner`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import Array, Arrays, Tree

State = TypeVar("State")


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
        """Context manager within which a rollout's calls of `act` are made."""

    def begin_rollout(self, state: State, seed: int, iteration: int) -> State:
        """State for the first step of an iteration, with the iteration's action noise drawn."""

    def act(self, state: State, t: int, policy_input: PolicyInput) -> tuple[State, Array]:
        """Actions `[N]` or `[N, A]` for the inputs `policy_input`, where the environments are; both are kept in row
        `t`.

        A last call with `t = num_steps` evaluates the final observations: its actions are unused, and the carry is not
        advanced.
        """

    def warmup(self, state: State, flags: Tree) -> State:
        """State with the algorithm's statistics updated by a warm-up rollout; nothing else learns from it."""

    def reset_env_statistics(self, state: State) -> State:
        """State with the algorithm's per-environment statistics reset, for environments that are reset."""

    def update(
        self, state: State, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[State, dict[str, float]]:
        """Learn from the rollout: compute the targets, and run all epochs and minibatches. Returns metrics by name.

        `flags` are the arrays named by `UpdateFunctions.learning_arrays`, `[T, N]` each. Metrics are those of the
        targets, means over minibatches of losses and of `gradient_norm`, and `learning_rate`, if the algorithm adapts
        it.
        """
