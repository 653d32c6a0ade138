"""Interface of a runner that trains several runs at once, as the outer loop uses it: `SeedsRunner`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Episode, Metrics, Runner

State = TypeVar("State")
IterationReports = list[tuple[Metrics, list[Episode]]]
"""Metrics and finished episodes of an iteration, for every run in order; see `Runner.iterate`."""


class SeedsRunner(Protocol[State]):
    """A `Runner` of several independent trainings; lists are in the order of the runs."""

    execution: Mapping[str, object]

    def init(self, seeds: Sequence[int]) -> State:
        """See `Runner.init`."""

    def iterate(self, state: State) -> tuple[State, IterationReports]:
        """Run one iteration of every run."""

    def export(self, state: State) -> list[Arrays]:
        """See `Runner.export`."""

    def restore(self, arrays: Sequence[Arrays]) -> State:
        """See `Runner.restore`; all runs must have done equally many iterations."""

    def episode_lengths(self, state: State) -> list[np.ndarray]:
        """See `Runner.episode_lengths`."""

    def restart_envs(self, state: State, iteration: int) -> State:
        """See `Runner.restart_envs`."""

    def close(self) -> None:
        """See `Runner.close`."""


class OneSeed:
    """A `SeedsRunner` for one seed, made from a `Runner`."""

    def __init__(self, runner: Runner[Any]) -> None:
        self._runner = runner
        self.execution = runner.execution

    def init(self, seeds: Sequence[int]) -> Any:
        """See `SeedsRunner.init`."""
        (seed,) = seeds
        return self._runner.init(seed)

    def iterate(self, state: Any) -> tuple[Any, IterationReports]:
        """See `SeedsRunner.iterate`."""
        state, metrics, episodes = self._runner.iterate(state)
        return state, [(metrics, episodes)]

    def export(self, state: Any) -> list[Arrays]:
        """See `SeedsRunner.export`."""
        return [self._runner.export(state)]

    def restore(self, arrays: Sequence[Arrays]) -> Any:
        """See `SeedsRunner.restore`."""
        (own,) = arrays
        return self._runner.restore(own)

    def episode_lengths(self, state: Any) -> list[np.ndarray]:
        """See `SeedsRunner.episode_lengths`."""
        return [self._runner.episode_lengths(state)]

    def restart_envs(self, state: Any, iteration: int) -> Any:
        """See `SeedsRunner.restart_envs`."""
        return self._runner.restart_envs(state, iteration)

    def close(self) -> None:
        """See `SeedsRunner.close`."""
        self._runner.close()
