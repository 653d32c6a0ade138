"""The journal of a sweep: a file with the outcome of each job. Jobs write it, on whatever machine they run.

The sweep reads it to report failures at once and to print a table at the end.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ppo_bench.common.files import read_json
from ppo_bench.common.rows import read_rows

POLL_SECONDS = 0.3
STATES = {"done": "green", "failed": "red", "skipped": "dim"}


class JobOutcome(NamedTuple):
    """The outcome of a job."""

    state: str
    """One of done, failed, and skipped (it was done before)."""
    words: list[str]
    """Overrides of the job."""
    folder: str
    detail: str
    """The error of a failed job, else its `final_return_mean`, averaged over its seeds."""


class Journal:
    """A file to which jobs append their outcomes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, outcome: JobOutcome) -> None:
        """Append an outcome as one line, in a single write."""
        with open(self.path, "a") as file:
            file.write(json.dumps(outcome) + "\n")

    def outcomes(self) -> list[JobOutcome]:
        """All outcomes so far."""
        return [JobOutcome(*row) for row in read_rows(self.path)]


def finished(state: str, words: list[str], folders: Sequence[Path]) -> tuple[JobOutcome, float | None]:
    """The outcome of a complete job, and the mean of `final_return_mean` over its runs, whose folders are
    `folders`; None if a run has none."""
    found = [read_json(folder / "result.json").get("final_return_mean") for folder in folders]
    values = [value for value in found if value is not None]
    value = statistics.fmean(values) if len(values) == len(found) else None
    return JobOutcome(state, words, str(folders[0]), "no episode ended" if value is None else f"{value:.2f}"), value


@contextmanager
def failures_reported(journal: Journal) -> Iterator[None]:
    """A context in which a thread reports failed jobs and their errors on stderr as soon as they are in the journal."""
    over, stderr = threading.Event(), sys.stderr

    def report() -> None:
        reported = 0
        while True:
            last = over.wait(POLL_SECONDS)
            outcomes = journal.outcomes()
            for outcome in outcomes[reported:]:
                if outcome.state == "failed":
                    line = f"ppo_bench: failed: {' '.join(outcome.words)}: {outcome.detail}"
                    print(line, file=stderr, flush=True)
            reported = len(outcomes)
            if last:
                return

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


def print_table(outcomes: Sequence[JobOutcome]) -> None:
    """Print a row for each job: its state, the overrides that not all jobs share, and its final return or error."""
    shared = set.intersection(*(set(outcome.words) for outcome in outcomes)) if len(outcomes) > 1 else set()
    table = Table(box=None)
    for column in ("state", "job", "final return or error"):
        table.add_column(column, overflow="fold")
    for outcome in outcomes:
        words = " ".join(word for word in outcome.words if word not in shared)
        table.add_row(Text(outcome.state, STATES[outcome.state]), Text(words), Text(outcome.detail))
    console = Console(stderr=True)
    (console if console.is_terminal else Console(stderr=True, width=200)).print(table)
