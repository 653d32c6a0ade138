"""Pauses of a training for evaluations, videos and a listener; their seconds count in no time or speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Peers
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.evaluation import Evaluator
from ppo_bench.runs.group import shared
from ppo_bench.runs.record import Record

Listener = Callable[[Path, Mapping[str, Any]], object]
"""A function that is called with a run's folder and its new row of metrics.jsonl after each iteration."""


class Pauses:
    """The pauses of runs that are trained together, whose configurations differ in seed and `NUMBERS` alone."""

    def __init__(
        self, configs: Sequence[Config], on_iteration: Listener | None = None, peers: Peers | None = None
    ) -> None:
        """`peers` connects the ranks of the training; rank 0 evaluates. None if this process trains alone."""
        self.configs, self.peers = configs, peers
        self._evaluator = Evaluator(configs[0])
        self._on_iteration, self._untold = on_iteration, list[tuple[Record, Mapping[str, Any]]]()
        self.seconds = 0.0
        """Total seconds of all pauses so far."""

    @property
    def columns(self) -> list[dict[str, float | None]]:
        """Columns of each run's row for an iteration without an evaluation."""
        return [self._evaluator.columns for _ in self.configs]

    def evaluate(
        self, runner: SeedsRunner[Any], state: Any, iteration: int, stop: Sequence[int]
    ) -> list[dict[str, float | None]] | None:
        """Evaluation columns of each run's row for `iteration`; None if `stop` was not empty during the evaluation."""
        if not self._evaluator.is_due(iteration):
            return self.columns
        started = time.perf_counter()
        exported = runner.export(state)
        found = self._played(exported, stop) if self.configs[0].rank == 0 else None
        found = shared(self.peers, found)[0]
        self.seconds += time.perf_counter() - started
        return found

    def _played(self, exported: Sequence[Arrays], stop: Sequence[int]) -> list[dict[str, float | None]] | None:
        found = []
        for arrays, config in zip(exported, self.configs, strict=True):
            columns = self._evaluator.evaluate(arrays, config.root.seed, stop)
            if columns is None:
                return None
            found.append(columns)
        return found

    def note(self, record: Record, row: Mapping[str, Any]) -> None:
        """Keep a row of metrics.jsonl for the listener, if there is one, until `tell`."""
        if self._on_iteration is not None:
            self._untold.append((record, row))

    def tell(self) -> None:
        """Give the listener the rows that were kept for it, in a moment when nothing is computed."""
        if self._on_iteration is None:
            return
        started = time.perf_counter()
        for record, row in self._untold:
            record.write()  # a listener may read it
            self._on_iteration(record.folder, row)
        self._untold.clear()
        self.seconds += time.perf_counter() - started

    def film(self, records: Sequence[Record], checkpoints: Sequence[Path], stop: Sequence[int]) -> None:
        """Film the policies of the newest `checkpoints` where a video is due."""
        for record, newest in zip(records, checkpoints, strict=True):
            self.seconds += record.films.film(newest, record.loop.episodes, stop)

    def close(self) -> None:
        """Close the environments of evaluations."""
        self._evaluator.close()
