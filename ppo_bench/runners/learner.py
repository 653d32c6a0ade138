"""How a framework executes an iteration whose environments live on the host: the Learner interface."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np

from ppo_bench.envs.base import Seen
from ppo_bench.mathematics.arrays import Arrays

State = TypeVar("State")


class Learner(Protocol[State]):
    """A framework's network, algorithm and optimiser. State goes in and comes out, a rollout's memory included; a state
    that went in is not to be used again."""

    execution: Mapping[str, object]
    """How it executes: device, threads, precision flags. Recorded with every run."""

    def load(self, arrays: Arrays) -> State:
        """State from a dictionary that has `learner_arrays` and `carry_arrays` (`ppo_bench/runners/declared.py`)."""

    def export(self, state: State) -> Arrays:
        """Copies of those arrays, by name."""

    def acting(self) -> AbstractContextManager[object]:
        """The context of a rollout."""

    def begin(self, state: State, seed: int, iteration: int) -> State:
        """Ready for the first step of an iteration, its noise drawn."""

    def act(self, state: State, t: int, seen: Seen) -> tuple[State, np.ndarray]:
        """Actions `[N]` or `[N, A]` on the host; what the policy saw and did is row `t` of the memory.

        After the last step, `t = num_steps`, the values alone are of use, and the carry stays as it was.
        """

    def warmed(self, state: State, flags: Arrays) -> State:
        """The algorithm's statistics have seen the rollout: all that is learnt from one before the training."""

    def restart(self, state: State) -> State:
        """The algorithm's statistics of each environment begin anew, as the environments do."""

    def targets(self, state: State, flags: Arrays, seed: int, iteration: int) -> tuple[State, Any, dict[str, float]]:
        """The batch of the rollout and what it measures; `flags [T, N]` are those of `Computation.flags`.

        A learner whose `update` computes the targets too, in the same program, returns the flags for the batch.
        """

    def update(
        self, state: State, batch: Any, seed: int, iteration: int, learning_rate: float
    ) -> tuple[State, dict[str, float]]:
        """Every epoch and minibatch; the means of what the minibatches measured, and `gradient_norm`."""
