"""Pauses of a training, in which its policies are evaluated, filmed and rated: seconds that are in no time or speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_bench.configuration.config import Config
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.evaluation import Evaluator
from ppo_bench.runs.rating import Rater
from ppo_bench.runs.record import Record
from ppo_bench.runs.video.filmer import Filmer


class Pauses:
    """Those of runs that are trained together; what a run asks for, each by its own configuration."""

    def __init__(self, configs: Sequence[Config]) -> None:
        """Raises `ConfigError` if something is asked for that cannot be had."""
        self._filmers = [Filmer(config) for config in configs]
        self._raters = [Rater(config) for config in configs]
        self._evaluators = [Evaluator(config) for config in configs]
        self.seconds = self._filmers[0].require()
        """All that pauses have taken so far."""

    def evaluate(
        self, runner: SeedsRunner[Any], state: Any, iteration: int, stop: Sequence[int]
    ) -> list[dict[str, float | None]] | None:
        """The columns that each run's row of `iteration` has besides; None if `stop` came while they were measured."""
        if not self._evaluators[0].is_due(iteration):
            return [evaluator.columns for evaluator in self._evaluators]
        started, found = time.perf_counter(), []
        for evaluator, arrays in zip(self._evaluators, runner.export(state), strict=True):
            columns = evaluator.evaluate(arrays, stop)
            if columns is None:
                return None
            found.append(columns)
        self.seconds += time.perf_counter() - started
        return found

    def film(self, records: Sequence[Record], checkpoints: Sequence[Path], stop: Sequence[int]) -> None:
        """Film the policies of the newest `checkpoints`."""
        for record, newest, filmer in zip(records, checkpoints, self._filmers, strict=True):
            self.seconds += filmer.film(record.folder, newest, record.loop.episodes, stop)

    def rate(self, records: Sequence[Record], stop: Sequence[int]) -> None:
        """Rate the newest checkpoints, also those of runs that were stopped as they were rated."""
        for record, rater in zip(records, self._raters, strict=True):
            self.seconds += rater.rate(record.folder, record.loop, stop)

    def close(self) -> None:
        """Close the environments of evaluations and rated games."""
        for evaluator in self._evaluators:
            evaluator.close()
        for rater in self._raters:
            rater.close()
