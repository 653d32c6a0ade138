"""Interface of environments with the bookkeeping of their rollouts: `Envs`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import Arrays, Tree
from ppo_bench.runners.base import Episode

State = TypeVar("State")


class Rollout(NamedTuple):
    """Result of a rollout, without what the policy stored."""

    flags: Tree
    """Arrays for learning, `[T, N]` each: those that `UpdateFunctions.learning_arrays` names, and possibly others."""
    episodes: list[Episode]
    """Finished episodes, in the order of their ends."""
    masked_fraction: float
    """Share of steps that only reset an environment."""


class Envs(Protocol[State]):
    """Environments of a training, on the host or on the device, with normalisation. Methods take a state and return a
    new one; the old one must not be reused."""

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> State:
        """State after a reset of the environments by the key (seed, iteration); statistics are taken from `arrays`."""

    def load(self, arrays: Arrays) -> State:
        """State with the entries of `arrays` that belong to environments, which then replay a recording."""

    def export(self, state: State) -> Arrays:
        """Copies of the state's arrays, or of the running statistics alone, by name."""

    def lengths(self, state: State) -> np.ndarray:
        """Length so far of each environment's current episode, `[N]` int64."""

    def close(self) -> None:
        """Close the environments."""

    def policy_input(self, state: State) -> PolicyInput:
        """Inputs of the policy for the next step."""

    def begin_rollout(self, state: State) -> tuple[State, Any]:
        """State before the first step of a rollout, and uninitialised arrays for its steps."""

    def step(self, state: State, rollout: Any, t: int, actions: Any) -> tuple[State, Any]:
        """Step the environments, and write rewards and flags to row `t` of the rollout."""

    def end_rollout(self, state: State, rollout: Any) -> tuple[State, Rollout]:
        """State after a rollout, and its result."""
