"""The tables of the report, and their text as CSV and as columns of a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.analysis import ALL, Analysis
from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.groups import differing
from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.common.columns import aligned


class Table(NamedTuple):
    """A table of the report; cells are text, numbers, `Estimate`s or None."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


SUMMARY = {"final return": "final_return_mean", "steps/s": "steady_sps", "speed-up": "speedup_steady_sps"}
RETURNS = {"mean": "final_return_mean", "IQM": "final_return_iqm", "score": "normalised_score"}
SPEED_COLUMNS = {
    "steady speed (steps/s)": "steady_sps",
    "mean speed (steps/s)": "mean_sps",
    "compilation (s)": "compile_seconds",
    "training (s)": "wall_seconds",
    "set-up (s)": "setup_seconds",
    "speed-up": "speedup_steady_sps",
}
OVER_ENVS = {
    "IQM": "normalised_score_iqm",
    "mean": "normalised_score_mean",
    "probability of improvement": "probability_of_improvement",
}
"""Columns of tables with a row for each group, and the metrics that they show."""


def tables(analysis: Analysis, by: str, runs: Sequence[Run]) -> list[Table]:
    """All tables."""
    about = ("env", "algorithm", by)
    verdicts = {(pair.group.task, pair.group.name): pair.test.verdict for pair in analysis.pairs}
    summary = [
        (
            *(group.task, group.algorithm, group.name, len(group.finished)),
            *map(analysis.of(group).get, SUMMARY.values()),
            verdicts.get((group.task, group.name), ""),
        )
        for task in analysis.tasks
        for group in task.groups
    ]
    aggregates = [
        (env, analysis.algorithms(env, name), name, metric, *estimate)
        for (env, name), found in analysis.estimates.items()
        for metric, estimate in found.items()
    ]
    returns = _group_rows(analysis, RETURNS)
    returns.sort(key=lambda row: (row[0].split()[0], -row[4].point))  # best first
    equivalence = [
        (
            *(group.task, group.algorithm, group.name, baseline.name, Estimate(*test[:3]), test.margin),
            *("paired" if paired else "Welch", test.p_equivalent, test.p_different, test.verdict),
            analysis.of(group).get("probability_of_improvement"),
        )
        for group, baseline, test, paired in analysis.pairs
    ]
    over_envs = [
        (analysis.algorithms(ALL, name), name, found["normalised_score_iqm"].seeds, *map(found.get, OVER_ENVS.values()))
        for name in analysis.names
        if (found := analysis.estimates.get((ALL, name)))
    ]
    tested = ("compared with", "difference [90%]", "margin", "test", "p of equivalence", "p of difference", "verdict")
    improvement = "probability of improvement"
    return [
        Table("summary", "Summary", (*about, "seeds", *SUMMARY, "return"), summary),
        Table("aggregate", "All aggregates", (*about, "metric", *Estimate._fields), aggregates),
        Table("returns", "Final returns", (*about, "seeds", *RETURNS), returns),
        Table("speed", "Speeds and times", (*about, "seeds", *SPEED_COLUMNS), _group_rows(analysis, SPEED_COLUMNS)),
        Table("equivalence", "Compared with the baseline", (*about, *tested, improvement), equivalence),
        Table("over_envs", "Over all environments", ("algorithm", by, "seeds", *OVER_ENVS), over_envs),
        *_runs(runs),
    ]


def _group_rows(analysis: Analysis, metrics: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """A row for each group that has the first of the `metrics`."""
    first, *_ = metrics.values()
    return [
        (group.task, group.algorithm, group.name, found[first].seeds, *map(found.get, metrics.values()))
        for task in analysis.tasks
        for group in task.groups
        if first in (found := analysis.of(group))
    ]


def _runs(runs: Sequence[Run]) -> tuple[Table, Table]:
    """A row for each run with the hyperparameters and facts in which runs differ, and a row for each that all share."""
    trees = [run.setting | run.execution | run.facts for run in runs]
    for tree in trees:  # what other keys and columns say
        for key in ("framework.name", "backend.name", "device"):
            tree.pop(key, None)
    keys = differing(trees)
    measured = sorted({name for run in runs for name in run.measured})
    rows = [
        (
            *(run.folder, run.env, run.framework, run.seed, "finished" if run.finished else "unfinished"),
            *(run.global_step, run.recent_return_mean, run.steady_sps, run.mean_sps, run.compile_seconds),
            *(run.wall_seconds, run.resumes),
            *(run.measured.get(name) for name in measured),
            *(str(tree.get(key, "")) for key in keys),
        )
        for run, tree in zip(runs, trees, strict=True)
    ]
    columns = (
        *("folder", "env", "framework", "seed", "state", "steps", "return", "steady steps/s"),
        *("mean steps/s", "compilation (s)", "training (s)", "resumes", *measured, *keys),
    )
    shared = [(key, str(value)) for key, value in trees[0].items() if key not in keys]
    every = Table("runs", "Every run", columns, rows)
    return every, Table("same", "The same for all runs", ("what", "value"), shared)


def to_csv(table: Table) -> str:
    """The table as CSV, with all digits; an estimate takes three columns."""
    wide = {k for row in table.rows for k, value in enumerate(row) if isinstance(value, Estimate)}
    lines: list[list[Any]] = [[]]
    for k, name in enumerate(table.columns):
        lines[0] += [name, f"{name} low", f"{name} high"] if k in wide else [name]
    for row in table.rows:
        cells: list[Any] = []
        for k, value in enumerate(row):
            cells += (value or (None, None, None))[:3] if k in wide else [value]
        lines.append([None if isinstance(each, float) and not math.isfinite(each) else each for each in cells])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def to_text(table: Table) -> str:
    """The table in aligned columns."""
    return aligned([table.columns, *([cell(value) for value in row] for row in table.rows)])


def cell(value: Any) -> str:
    """The text of a table's cell."""
    if value is None:
        return ""
    if isinstance(value, Estimate):
        low, high = number(value.low), number(value.high)
        return f"{number(value.point)} [{low}, {high}]" if math.isfinite(value.low) else number(value.point)
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def number(value: float | None) -> str:
    """A number with four significant digits and thousands separators; empty if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 6 else f"{value:.3g}"
