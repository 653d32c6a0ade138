"""The table of ratings, which compare the checkpoints of a run on a game by their games against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.folders import Run


class Ratings(NamedTuple):
    """A row of the table: a summary of the ratings of a run's checkpoints."""

    env: str
    backend: str
    framework: str
    opponents: str
    seed: int
    checkpoints: int
    first: float
    last: float
    best: float
    best_at: int
    """Iteration of the checkpoint with the best rating."""


COLUMNS = (
    *("env", "backend", "framework", "opponents", "seed", "rated checkpoints"),
    *("first rating", "last", "best", "best after iteration"),
)
NOTE = (
    "In a game against itself a policy's mean return is zero. Each checkpoint has played some of the earlier ones, and "
    "all are rated by their games (Plackett-Luce, openskill): new players begin at 25, and a lead of 6.5 wins "
    "about three games of four. Ratings compare checkpoints of one run, not runs: match plays those."
)


def ratings(runs: Sequence[Run]) -> list[Ratings]:
    """A row for each run that has ratings."""
    return [_of(run) for run in runs if run.ratings]


def _of(run: Run) -> Ratings:
    by_iteration = {int(iteration): float(numbers[0]) for iteration, numbers in run.ratings.items()}
    order = sorted(by_iteration)
    best = max(order, key=by_iteration.__getitem__)
    pool: Any = run.setting.get("opponents.pool_size", 0)
    return Ratings(
        *(run.env, run.backend, run.framework, f"{pool} of the past" if pool else "itself", run.seed, len(order)),
        *(by_iteration[order[0]], by_iteration[order[-1]], by_iteration[best], best),
    )
