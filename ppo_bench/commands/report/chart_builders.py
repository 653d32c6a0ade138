"""The charts of a report, from its analysis and the rows of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.commands.report.analysis import ALL, Analysis
from ppo_bench.commands.report.charts import STEPS, TIME, Bar, Bars, Figure, HeatMap, Lines, Series
from ppo_bench.commands.report.curves import curves
from ppo_bench.commands.report.groups import ComparedTask, Group, differing, rank, value_text
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.statistics import Estimate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SERIES = 8
"""Maximum number of curves in a chart, so that they remain distinguishable."""
MAX_ROWS = 60
"""Maximum number of bars in a chart."""


@dataclass
class Panel:
    """Groups that share a chart."""

    title: str
    groups: list[Group]
    names: list[str]
    """Names of the groups, or of their tasks."""
    colours: list[int]


def figures(analysis: Analysis, connection: DuckDBPyConnection, drawn: Sequence[str], options: Options) -> list[Figure]:
    """All figures that are not empty; `drawn` are the columns of the table `steps` to draw besides the returns."""
    panels = list(_panels(analysis))
    made = [
        *_curves(panels, connection, drawn, options),
        *_speed(analysis, panels),
        _speedup(analysis, options),
        Figure("returns", "returns", "Final returns", [_bars(analysis, p, "final_return_iqm") for p in panels]),
        Figure("heat_maps", "heat_maps", "Two hyperparameters", list(_heat_maps(analysis))),
        _equivalence(analysis, options),
        *_over_tasks(analysis),
    ]
    for figure in made:
        figure.charts = [chart for chart in figure.charts if not isinstance(chart, Bars) or chart.rows]
    return [figure for figure in made if figure.charts]


def _panels(analysis: Analysis) -> Iterator[Panel]:
    """A panel for each task with several groups, and one for all other tasks of an environment together."""
    for env in dict.fromkeys(task.env for task in analysis.tasks):
        own = [task for task in analysis.tasks if task.env == env]
        alone = [task for task in own if len(task.groups) == 1]
        for task in own if len(alone) == 1 else [task for task in own if task not in alone]:
            names = [group.name for group in task.groups]
            yield Panel(task.label, task.groups, names, [analysis.names.index(name) for name in names])
        if len(alone) > 1:
            groups = [task.groups[0] for task in alone]
            names = [group.task.removeprefix(env).strip() for group in groups]
            if len({group.name for group in groups}) > 1:
                names = [f"{group.name} · {name}" for group, name in zip(groups, names, strict=True)]
            title = env if len(alone) == len(own) else f"{env}, others"
            yield Panel(title, groups, names, list(range(len(groups))))


def _curves(
    panels: Sequence[Panel], connection: DuckDBPyConnection, drawn: Sequence[str], options: Options
) -> Iterator[Figure]:
    """Returns over steps and time for each panel, then the columns `drawn` over steps."""
    best = [_best(panel) for panel in panels]
    numbers = [panel.groups[k].numbers for panel, kept in zip(panels, best, strict=True) for k in kept]

    def charts(title: str, x_label: str, y_label: str, axis: str, column: str, weight: str) -> list[Lines]:
        """A chart of a column for each panel."""
        found = iter(curves(connection, numbers, axis, column=column, weight=weight, **options.resampling))
        made = []
        for panel, kept in zip(panels, best, strict=True):
            left = len(panel.groups) - len(kept)
            of_returns = weight == "episodes"
            note = f"{left} more, which end lower, are in the tables." if left and of_returns else ""
            series = [
                Series(
                    panel.names[k], panel.colours[k], curve.x, *curve.band, curve.runs if of_returns else curve.runs[:0]
                )
                for k, curve in zip(kept, found, strict=False)
                if of_returns or np.isfinite(curve.band.mean).any()
            ]
            made.append(Lines(title, x_label, y_label, series, note))
        return made

    returns = [
        charts(*about, "episodic return", axis, "episodic_return", "episodes")
        for about, axis in ((STEPS, "global_step"), (TIME, "training_seconds"))
    ]
    others = [charts(name.replace("_", " "), STEPS[1], "", "global_step", name, "1") for name in drawn]
    for section, rows in (("learning", returns), ("training", others)):
        for number, panel in enumerate(panels, 1):
            shown = [row[number - 1] for row in rows if row[number - 1].series]
            yield Figure(f"{section}_{number:02}_{file_stem(panel.title)}", section, panel.title, shown)


def _best(panel: Panel) -> list[int]:
    """Indices of the `MAX_SERIES` groups with the highest returns, in order."""

    def final(group: Group) -> float:
        found = [run.recent_return_mean for run in group.runs if run.recent_return_mean is not None]
        return float(np.mean(found)) if found else -np.inf

    return sorted(sorted(range(len(panel.groups)), key=lambda index: -final(panel.groups[index]))[:MAX_SERIES])


def file_stem(name: str) -> str:
    """`name` as a part of a file name: ASCII letters, digits and underscores, at most 40 characters."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)[:40]


def _bars(analysis: Analysis, panel: Panel, metric: str) -> Bars:
    """A row for each group of a panel, with a dot for each seed."""
    dots = "final_return_mean" if metric == "final_return_iqm" else metric
    rows = [
        Bar(name, colour, found, group.values(dots).tolist())
        for name, colour, group in zip(panel.names, panel.colours, panel.groups, strict=True)
        if (found := analysis.estimate(group.task, group.name, metric))
    ]
    return _capped(panel.title, "final return", rows)


def _capped(title: str, x_label: str, rows: list[Bar], marks: Sequence[float] = (), *, from_zero: bool = False) -> Bars:
    note = f"The first {MAX_ROWS} of {len(rows)}; all are in the tables." if len(rows) > MAX_ROWS else ""
    return Bars(title, x_label, rows[:MAX_ROWS], from_zero, list(marks), note)


def _speed(analysis: Analysis, panels: Sequence[Panel]) -> Iterator[Figure]:
    wanted = (
        ("steady_sps", "steady speed", "environment steps per second"),
        ("compile_seconds", "compilation", "seconds"),
        ("wall_seconds", "training", "seconds of wall time"),
    )
    for number, panel in enumerate(panels, 1):
        charts = [
            _capped(title, label, _bars(analysis, panel, metric).rows, from_zero=True)
            for metric, title, label in wanted
        ]
        yield Figure(f"speed_{number:02}_{file_stem(panel.title)}", "speed", panel.title, charts)


def _bars_by_task(analysis: Analysis, metric: str) -> list[Bar]:
    """A row for each group that has the metric, named by its task and its own name."""
    return [
        Bar(_row_name(analysis, task, group.name), analysis.names.index(group.name), found)
        for task in analysis.tasks
        for group in task.groups
        if (found := analysis.estimate(task.label, group.name, metric))
    ]


def _row_name(analysis: Analysis, task: ComparedTask, name: str) -> str:
    return f"{task.label}: {name}" if len(analysis.tasks) > 1 else name


def _speedup(analysis: Analysis, options: Options) -> Figure:
    label = f"times the steady speed of {options.baseline}"
    chart = _capped("speed-up", label, _bars_by_task(analysis, "speedup_steady_sps"), [1.0])
    return Figure("speedup", "speedup", "Speed-up", [chart])


def _equivalence(analysis: Analysis, options: Options) -> Figure:
    rows = []
    for pair in analysis.pairs:
        if (found := pair.returns) and found.margin > 0:
            value = Estimate(*(each / found.margin for each in found[:3]))
            name = _row_name(analysis, pair.task, pair.group.name)
            rows.append(Bar(name, analysis.names.index(pair.group.name), value))
    label = f"difference from {options.baseline}, in margins"
    chart = _capped("equivalent if within -1 and 1", label, rows, [-1.0, 1.0])
    return Figure("equivalence", "equivalence", "Equivalence", [chart])


def _over_tasks(analysis: Analysis) -> Iterator[Figure]:
    colour = analysis.names.index
    series = [
        Series(name, colour(name), analysis.thresholds, *band, np.zeros((0, len(band.mean))))
        for name, band in analysis.profiles.items()
    ]
    if series:
        chart = Lines("performance profile", "normalised score τ", "fraction of runs above τ", series)
        yield Figure("profile", "all", "Performance profiles", [chart])
    improvements = [
        Bar(f"{'all environments' if env == ALL else env}: {ours} over {theirs}", colour(ours), estimate)
        for env, ours, theirs, estimate in sorted(analysis.improvements, key=lambda row: row.env != ALL)
    ]
    for key, title, label, rows, mark in (
        ("improvement", "probability of improvement", "probability that a run ends higher", improvements, 0.5),
        (
            "human",
            "human-normalised score",
            "0 is random play, 1 a human",
            _bars_by_task(analysis, "human_normalised_score"),
            1.0,
        ),
    ):
        yield Figure(key, "all", title, [_capped(title, label, rows, [mark])])


def _heat_maps(analysis: Analysis) -> Iterator[HeatMap]:
    """A heat map for each environment and way of executing whose runs differ in exactly two hyperparameters."""
    of: dict[tuple[str, str, str], list[Group]] = {}
    for task in analysis.tasks:
        for group in task.groups:
            of.setdefault((task.env, group.first.framework, str(group.first.execution)), []).append(group)
    for (env, framework, _), groups in of.items():
        keys = differing([group.first.setting for group in groups])
        if len(keys) != 2:
            continue
        places = [tuple(value_text(group.first.setting, key) for key in keys) for group in groups]
        y, x = (sorted({place[k] for place in places}, key=rank) for k in (0, 1))
        if min(len(x), len(y)) < 2:
            continue
        values = np.full((len(y), len(x)), np.nan)
        for (row, column), group in zip(places, groups, strict=True):
            if finals := group.finals():
                values[y.index(row), x.index(column)] = np.mean([*finals.values()])
        if np.isfinite(values).any():
            yield HeatMap(f"{env}, {framework}", keys[1], keys[0], x, y, values)
