"""The table of a multirun: what came of each job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ppo_bench.common.files import read_json
from ppo_bench.common.progress import say
from ppo_bench.sweeps.job import OUTCOME, Outcome

STATES = {"done": "green", "failed": "red", "skipped": "dim"}


def outcomes_in(folder: Path) -> list[Outcome]:
    """The outcomes of the jobs of the multirun in `folder`, in the order of their numbers."""
    paths = sorted(folder.glob(f"*/{OUTCOME}"), key=lambda path: (len(path.parent.name), path.parent.name))
    return [Outcome(**read_json(path)) for path in paths]


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print a row for each job: its state, the overrides that not all jobs share, and its final return or error.

    A last line counts the states.
    """
    shared = set.intersection(*(set(outcome.words) for outcome in outcomes)) if len(outcomes) > 1 else set()
    table = Table(box=None)
    for column in ("state", "job", "final return or error"):
        table.add_column(column, overflow="fold")
    for outcome in outcomes:
        words = " ".join(word for word in outcome.words if word not in shared)
        value = outcome.final_return_mean
        detail = outcome.error or ("no episode ended" if value is None else f"{value:.2f}")
        table.add_row(Text(outcome.state, STATES[outcome.state]), Text(words), Text(detail))
    console = Console(stderr=True)
    (console if console.is_terminal else Console(stderr=True, width=200)).print(table)
    states = [outcome.state for outcome in outcomes]
    say(", ".join(f"{states.count(state)} {state}" for state in STATES))
