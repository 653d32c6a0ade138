"""The interface of the outer loop to runners: lists of runs; most runners have one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import IterationReports, Runner

if TYPE_CHECKING:
    from ppo_bench.runners.jax_seeds import JaxSeedsRunner

SeedsRunner: TypeAlias = "OneSeed | JaxSeedsRunner"
"""The runner of one run or of several independent ones. Its methods are those of a `Runner`, for lists of runs."""


class OneSeed:
    """The runner of one run."""

    def __init__(self, runner: Runner[Any]) -> None:
        self._runner = runner
        self.execution = runner.execution

    def init(self, seeds: Sequence[int]) -> Any:
        """See `Runner.init`."""
        (seed,) = seeds
        return self._runner.init(seed)

    def iterate(self, state: Any, until: int = 0) -> tuple[Any, IterationReports]:
        """See `Runner.iterate`."""
        state, metrics, episodes = self._runner.iterate(state, until)
        return state, [(metrics, episodes)]

    def export(self, state: Any) -> list[Arrays]:
        """See `Runner.export`."""
        return [self._runner.export(state)]

    def restore(self, arrays: Sequence[Arrays]) -> Any:
        """See `Runner.restore`."""
        (own,) = arrays
        return self._runner.restore(own)

    def restart_envs(self, state: Any) -> Any:
        """See `Runner.restart_envs`."""
        return self._runner.restart_envs(state)

    def close(self) -> None:
        """See `Runner.close`."""
        self._runner.close()
