"""Callbacks of a training: evaluations, videos and a listener. No time or speed includes their seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import ProcessGroup
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.distributed import all_gather_object
from ppo_bench.runs.evaluation import Evaluator
from ppo_bench.runs.run_writer import RunWriter

Listener = Callable[[Path, Mapping[str, Any]], object]
"""A function that is called with a run's folder and its new row of metrics.jsonl after each iteration."""


class Callbacks:
    """The callbacks of runs that are trained together: only seed and `VMAPPABLE_HYPERPARAMETERS` differ."""

    def __init__(
        self, configs: Sequence[Config], on_iteration: Listener | None = None, process_group: ProcessGroup | None = None
    ) -> None:
        """`process_group` connects the ranks of the training; rank 0 evaluates. None if this process trains alone."""
        self.configs, self.process_group = configs, process_group
        self._evaluator = Evaluator(configs[0])
        self._on_iteration, self._queued_rows = on_iteration, list[tuple[RunWriter, Mapping[str, Any]]]()
        self.seconds = 0.0
        """Total seconds of all callbacks so far."""

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
        found = self._evaluate_runs(exported, stop) if self.configs[0].rank == 0 else None
        found = all_gather_object(self.process_group, found)[0]
        self.seconds += time.perf_counter() - started
        return found

    def _evaluate_runs(self, exported: Sequence[Arrays], stop: Sequence[int]) -> list[dict[str, float | None]] | None:
        found = []
        for arrays, config in zip(exported, self.configs, strict=True):
            columns = self._evaluator.evaluate(arrays, config.root.seed, stop)
            if columns is None:
                return None
            found.append(columns)
        return found

    def queue_row(self, writer: RunWriter, row: Mapping[str, Any]) -> None:
        """Keep a row of metrics.jsonl for the listener, if there is one, until `notify`."""
        if self._on_iteration is not None:
            self._queued_rows.append((writer, row))

    def notify(self) -> None:
        """Give the listener the rows that were kept for it, in a moment when nothing is computed."""
        if self._on_iteration is None:
            return
        started = time.perf_counter()
        for writer, row in self._queued_rows:
            writer.write()  # a listener may read it
            self._on_iteration(writer.folder, row)
        self._queued_rows.clear()
        self.seconds += time.perf_counter() - started

    def record_videos(self, writers: Sequence[RunWriter], checkpoints: Sequence[Path], stop: Sequence[int]) -> None:
        """Record videos of the policies of the newest `checkpoints`, where one is due."""
        for writer, newest in zip(writers, checkpoints, strict=True):
            self.seconds += writer.video_recorder.record(newest, writer.loop.episodes, stop)

    def close(self) -> None:
        """Close the environments of evaluations."""
        self._evaluator.close()
