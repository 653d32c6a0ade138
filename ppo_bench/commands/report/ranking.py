"""Settings of hyperparameters on one environment, ranked by their final returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.groups import ComparedTask
from ppo_bench.commands.report.statistics import Array, Estimate, mean_interval, tost
from ppo_bench.commands.report.table import Table
from ppo_bench.common.values import digest

NOTE = (
    "Settings of one environment, executed in the same way, by their mean final return, with Student's 95% interval "
    "over seeds. The difference from the first has the 90% interval of Welch's test. It favours the first, which was "
    "chosen for its mean: of many settings one leads by chance, and more seeds of the first few tell."
)


class Ranked(NamedTuple):
    """One of several settings of an environment, executed in one way."""

    env: str
    algorithm: str
    """Label of the way of executing."""
    setting: str
    """The hyperparameters that distinguish it from the others."""
    seeds: int
    mean: Estimate
    difference: Estimate | None
    """Mean return less that of the best setting; None for the best, and where either has a single seed."""


def ranked(tasks: Sequence[ComparedTask]) -> list[list[Ranked]]:
    """Settings with final returns, best first, for each environment and way of executing that have several.

    Versions and options of an environment (`env.*`) are tasks of their own, whose returns are not compared.
    """
    finals: dict[tuple[str, str, str], list[tuple[str, Array]]] = {}
    for task in tasks:
        for group in task.groups:
            values = group.values("final_return_mean")
            if len(values):
                label = task.label.removeprefix(task.env).strip()
                of = task.env, played(task), group.algorithm
                finals.setdefault(of, []).append((label, values))
    rankings = []
    for (env, _, algorithm), found in finals.items():
        if len(found) > 1:
            found.sort(key=lambda of: -of[1].mean())
            best = found[0][1]
            rankings.append(
                [Ranked(env, algorithm, label, len(own), mean_interval(own), _less(own, best)) for label, own in found]
            )
    return rankings


def played(task: ComparedTask) -> str:
    """A digest of the version and the options of a task's environment."""
    options = {key: value for key, value in task.groups[0].first.setting.items() if key.startswith("env.")}
    return digest({"id": task.env_id, **options})


def _less(own: Array, best: Array) -> Estimate | None:
    if own is best or min(len(own), len(best)) < 2:
        return None
    found = tost(own, best, np.inf)
    return Estimate(found.difference, found.low, found.high)


def ranking(tasks: Sequence[ComparedTask]) -> Table:
    """A table of the ranked settings."""
    columns = ("env", "algorithm", "setting", "seeds", "mean return", "difference from the best [90%]")
    return Table("ranking", "Settings by final return", columns, [row for rows in ranked(tasks) for row in rows], NOTE)
