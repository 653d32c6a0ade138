"""What is drawn: charts as data, from which both the figures and the page are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.report.analysis import ALL, Analysis, Options
from ppo_bench.report.curves import Curves, curves
from ppo_bench.report.groups import Group
from ppo_bench.report.statistics import Array, Estimate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SERIES = 8
"""Curves in a chart, so that each can be told from the others."""
MAX_ROWS = 60
"""Bars in a chart."""
NO_BAND = "(seeds {})"


@dataclass
class Series:
    """A curve with its band and the runs behind it."""

    name: str
    colour: int
    x: Array
    mean: Array
    low: Array
    high: Array
    runs: Array
    """`[N, K]`."""


@dataclass
class Lines:
    """A chart of curves."""

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    note: str = ""


@dataclass
class Row:
    """A bar or a point with its interval."""

    task: str
    """Above the first of its rows; nothing where the title says it."""
    name: str
    colour: int
    value: Estimate
    dots: list[float] = field(default_factory=list)


@dataclass
class Rows:
    """A chart of horizontal bars from zero, or of points, below each other."""

    title: str
    x_label: str
    rows: list[Row]
    bars: bool
    mark: list[float] = field(default_factory=list)
    """Values that matter, drawn as lines."""
    note: str = ""


@dataclass
class Figure:
    """Charts that belong side by side, and the section of the page they are in."""

    key: str
    section: str
    title: str
    charts: list[Lines | Rows]


def figures(analysis: Analysis, connection: DuckDBPyConnection, options: Options) -> list[Figure]:
    """Every figure that there is something to show in."""
    colours = {name: index for index, name in enumerate(analysis.algorithms)}
    made = [
        *_learning(analysis, connection, options, colours),
        _speed(analysis, colours),
        _speedup(analysis, options, colours),
        _returns(analysis, colours),
        _equivalence(analysis, options, colours),
        _profile(analysis, colours),
        _improvement(analysis, colours),
        _human(analysis, colours),
    ]
    return [figure for figure in made if figure]


def _learning(
    analysis: Analysis, connection: DuckDBPyConnection, options: Options, colours: dict[str, int]
) -> list[Figure]:
    chosen: dict[str, list[Group]] = {}
    for env in dict.fromkeys(task.env for task in analysis.tasks):
        chosen[env] = [group for task in analysis.tasks if task.env == env for group in task.groups]
    notes = {env: _most(groups) for env, groups in chosen.items() if len(groups) > MAX_SERIES}
    for env, groups in chosen.items():
        chosen[env] = _best(groups)
    flat = [group for groups in chosen.values() for group in groups]
    members = [group.numbers for group in flat]
    over = {
        axis: dict(
            zip(map(id, flat), curves(connection, members, axis, seed=options.seed, resamples=options.resamples),
                strict=True)
        )
        for axis in ("global_step", "wall_seconds")
    }  # fmt: skip
    made = []
    for number, (env, groups) in enumerate(chosen.items(), 1):
        several = len({group.task for group in groups}) > 1

        def lines(axis: str, x_label: str, groups: list[Group], several: bool, env: str) -> Lines:
            series = [
                _series(group, over[axis][id(group)], several, index if several else colours[group.algorithm], env)
                for index, group in enumerate(groups)
            ]
            title = "by environment steps" if axis == "global_step" else "by wall time"
            return Lines(title, x_label, "episodic return", series, notes.get(env, ""))

        charts: list[Lines | Rows] = [
            lines("global_step", "environment steps", groups, several, env),
            lines("wall_seconds", "training time (s)", groups, several, env),
        ]
        made.append(Figure(f"learning_{number:02}_{file_stem(env)}", "learning", env, charts))
    return made


def file_stem(name: str) -> str:
    """`name` as part of a file's name."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)[:40]


def _best(groups: list[Group]) -> list[Group]:
    if len(groups) <= MAX_SERIES:
        return groups
    kept = sorted(groups, key=lambda group: -_final(group))[:MAX_SERIES]
    return [group for group in groups if group in kept]


def _final(group: Group) -> float:
    found = [run.recent_return_mean for run in group.runs if run.recent_return_mean is not None]
    return float(np.mean(found)) if found else -np.inf


def _most(groups: Sequence[Group]) -> str:
    return f"The {MAX_SERIES} of {len(groups)} with the highest final return; all are in the tables."


def _series(group: Group, found: Curves, several: bool, colour: int, env: str) -> Series:
    name = group.algorithm + (f" · {group.task.removeprefix(env).strip()}" if several else "")
    return Series(name, colour, found.x, *found.band, found.runs)


def _rows(analysis: Analysis, colours: dict[str, int], metric: str, dots: str | None = None) -> list[Row]:
    by = {(row.env, row.backend, row.framework): row for row in analysis.aggregates if row.metric == metric}
    rows = []
    for task in analysis.tasks:
        for group in task.groups:
            found = by.get((task.label, group.backend, group.framework))
            if found:
                values = group.values(dots).tolist() if dots else []
                value = Estimate(found.point, found.low, found.high)
                rows.append(Row(task.label, group.algorithm, colours[group.algorithm], value, values))
    return rows


def _capped(title: str, x_label: str, rows: list[Row], *, bars: bool, mark: Sequence[float] = ()) -> Rows:
    note = f"The first {MAX_ROWS} of {len(rows)}; all are in the tables." if len(rows) > MAX_ROWS else ""
    return Rows(title, x_label, rows[:MAX_ROWS], bars, list(mark), note)


def _speed(analysis: Analysis, colours: dict[str, int]) -> Figure | None:
    wanted = (
        ("steady_sps", "steady speed", "environment steps per second"),
        ("compile_seconds", "compilation", "seconds"),
        ("wall_seconds", "training", "seconds of wall time"),
    )
    charts: list[Lines | Rows] = [
        _capped(title, label, rows, bars=True)
        for metric, title, label in wanted
        if (rows := _rows(analysis, colours, metric, metric))
    ]
    return Figure("speed", "speed", "Speed", charts) if charts else None


def _speedup(analysis: Analysis, options: Options, colours: dict[str, int]) -> Figure | None:
    rows = _rows(analysis, colours, "speedup_steady_sps")
    label = f"times the steady speed of {options.baseline}"
    return _alone("speedup", "speed", "Speed-up", _capped("speed-up", label, rows, bars=False, mark=[1.0]))


def _returns(analysis: Analysis, colours: dict[str, int]) -> Figure | None:
    env_of = {task.label: task.env for task in analysis.tasks}
    panels: dict[str, list[Row]] = {}
    for row in _rows(analysis, colours, "final_return_iqm", "final_return_mean"):
        env = env_of[row.task]
        panels.setdefault(env, []).append(replace(row, task=row.task.removeprefix(env).strip()))
    charts: list[Lines | Rows] = [_capped(env, "final return", rows, bars=False) for env, rows in panels.items()]
    return Figure("returns", "returns", "Final returns", charts) if charts else None


def _equivalence(analysis: Analysis, options: Options, colours: dict[str, int]) -> Figure | None:
    rows = []
    for pair in analysis.pairs:
        if (found := pair.returns) and found.margin > 0:
            value = Estimate(*(each / found.margin for each in found[:3]))
            rows.append(Row(pair.task.label, pair.group.algorithm, colours[pair.group.algorithm], value))
    label = f"difference from {options.baseline}, in margins"
    chart = _capped("equivalent if within -1 and 1", label, rows, bars=False, mark=[-1.0, 1.0])
    return _alone("equivalence", "equivalence", "Equivalence", chart)


def _profile(analysis: Analysis, colours: dict[str, int]) -> Figure | None:
    series = [
        Series(name, colours[name], analysis.thresholds, *band, np.zeros((0, len(band.mean))))
        for name, band in analysis.profiles.items()
    ]
    chart = Lines("performance profile", "normalised score τ", "fraction of runs above τ", series)
    return Figure("profile", "all", "Performance profiles", [chart]) if series else None


def _improvement(analysis: Analysis, colours: dict[str, int]) -> Figure | None:
    rows = [
        Row(row.task, f"{row.ours} over {row.theirs}", colours[row.ours], row.estimate)
        for row in sorted(analysis.improvements, key=lambda row: row.task != ALL)
    ]
    for row in rows:
        row.task = "all environments" if row.task == ALL else row.task
    label = "probability that a run ends higher"
    chart = _capped("probability of improvement", label, rows, bars=False, mark=[0.5])
    return _alone("improvement", "all", "Improvement", chart)


def _human(analysis: Analysis, colours: dict[str, int]) -> Figure | None:
    rows = _rows(analysis, colours, "human_normalised_score")
    chart = _capped("human-normalised score", "0 is random play, 1 a human", rows, bars=False, mark=[1.0])
    return _alone("human", "human", "Human-normalised scores", chart)


def _alone(key: str, section: str, title: str, chart: Rows) -> Figure | None:
    return Figure(key, section, title, [chart]) if chart.rows else None
