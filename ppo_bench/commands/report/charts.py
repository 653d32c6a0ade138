"""Charts as data; figures (figures.py) and the page (page.py) are both made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.commands.report.analysis import ALL, Analysis
from ppo_bench.commands.report.curves import curves
from ppo_bench.commands.report.groups import Group, Panel, panels
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.statistics import Array, Estimate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SERIES = 8
"""Maximum number of curves in a chart, so that they remain distinguishable."""
MAX_ROWS = 60
"""Maximum number of bars in a chart."""
STEPS = ("by environment steps", "environment steps")
TIME = ("by wall time", "training time without compilation (s)")
Colours = Callable[[Panel, int], int]
"""A function from a panel and the index of a group in it to the index of a colour."""


@dataclass
class Series:
    """A mean curve with its confidence band and the curves of its runs."""

    name: str
    colour: int
    x: Array
    mean: Array
    low: Array
    high: Array
    runs: Array
    """Curves of the single runs, `[N, K]`."""


@dataclass
class Lines:
    """A chart of curves."""

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    note: str = ""


@dataclass
class ChartRow:
    """A row of a chart: a bar or a point with its interval."""

    task: str
    """Heading above the first row of the task; empty if the chart's title names it."""
    name: str
    colour: int
    value: Estimate
    dots: list[float] = field(default_factory=list)
    """Values of the single runs."""


@dataclass
class RowsPanel:
    """A chart with a horizontal bar, or a point, in each row."""

    title: str
    x_label: str
    rows: list[ChartRow]
    bars: bool
    """Whether values are bars from 0, or points."""
    mark: list[float] = field(default_factory=list)
    """Values at which a vertical line is drawn."""
    note: str = ""


@dataclass
class Figure:
    """Charts side by side, with the section of the page to which they belong."""

    key: str
    section: str
    title: str
    charts: list[Lines | RowsPanel]


def figures(analysis: Analysis, connection: DuckDBPyConnection, drawn: Sequence[str], options: Options) -> list[Figure]:
    """All figures that are not empty; `drawn` are the columns of the table `steps` to draw besides the returns."""
    split, colours = panels(analysis.tasks), _colours(analysis)
    made = [
        *_learning(split, connection, options, colours),
        *_training(split, connection, drawn, options, colours),
        *_speed(analysis, split, colours),
        _speedup(analysis, options),
        _returns(analysis, split, colours),
        _equivalence(analysis, options),
        _profile(analysis),
        _improvement(analysis),
        _human(analysis),
    ]
    return [figure for figure in made if figure]


def _learning(
    panels: Sequence[Panel], connection: DuckDBPyConnection, options: Options, colours: Colours
) -> list[Figure]:
    kept = [_best(panel) for panel in panels]
    groups = [group for panel in kept for group in panel.groups]
    steps, seconds = (
        curves(connection, [group.numbers for group in groups], axis, **options.resampling)
        for axis in ("global_step", "training_seconds")
    )
    over = {id(group): each for group, *each in zip(groups, steps, seconds, strict=True)}
    made = []
    for number, (panel, all_of_it) in enumerate(zip(kept, panels, strict=True), 1):
        left = len(all_of_it.groups) - len(panel.groups)
        note = f"{left} more, which end lower, are in the tables." if left else ""
        charts: list[Lines | RowsPanel] = []
        for axis, (title, label) in enumerate((STEPS, TIME)):
            series = [
                Series(name, colours(all_of_it, all_of_it.groups.index(group)), found.x, *found.band, found.runs)
                for name, group in zip(panel.names, panel.groups, strict=True)
                if (found := over[id(group)][axis])
            ]
            charts.append(Lines(title, label, "episodic return", series, note))
        made.append(Figure(f"learning_{number:02}_{file_stem(panel.title)}", "learning", panel.title, charts))
    return made


def _training(
    panels: Sequence[Panel],
    connection: DuckDBPyConnection,
    drawn: Sequence[str],
    options: Options,
    colours: Colours,
) -> list[Figure]:
    """A figure for each panel, with a chart of each column in `drawn` over environment steps."""
    kept = [_best(panel) for panel in panels]
    numbers = [group.numbers for panel in kept for group in panel.groups]
    found = {
        column: iter(curves(connection, numbers, "global_step", column=column, weight="1", **options.resampling))
        for column in drawn
    }
    made = []
    for number, (panel, all_of_it) in enumerate(zip(kept, panels, strict=True), 1):
        charts: list[Lines | RowsPanel] = []
        for column in drawn:
            series = [
                Series(
                    name,
                    colours(all_of_it, all_of_it.groups.index(group)),
                    *(curve.x, *curve.band, np.zeros((0, len(curve.x)))),
                )
                for name, group, curve in zip(panel.names, panel.groups, found[column], strict=False)
                if np.isfinite(curve.band.mean).any()
            ]
            if series:
                charts.append(Lines(column.replace("_", " "), STEPS[1], "", series))
        if charts:
            made.append(Figure(f"training_{number:02}_{file_stem(panel.title)}", "training", panel.title, charts))
    return made


def file_stem(name: str) -> str:
    """`name` as a part of a file name: ASCII letters, digits and underscores, at most 40 characters."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)[:40]


def _best(panel: Panel) -> Panel:
    """The panel reduced to the `MAX_SERIES` groups with the highest returns."""
    order = sorted(range(len(panel.groups)), key=lambda index: -_final(panel.groups[index]))
    kept = sorted(order[:MAX_SERIES])
    return Panel(panel.title, [panel.groups[index] for index in kept], [panel.names[index] for index in kept])


def _final(group: Group) -> float:
    found = [run.recent_return_mean for run in group.runs if run.recent_return_mean is not None]
    return float(np.mean(found)) if found else -np.inf


def _colours(analysis: Analysis) -> Colours:
    """The function that chooses colours: one for each algorithm in all charts, or one for each setting in a panel that
    has several."""
    fixed = {name: index for index, name in enumerate(analysis.algorithms)}

    def colour(panel: Panel, index: int) -> int:
        group = panel.groups[index]
        return fixed[group.algorithm] if panel.names[index] == group.algorithm else index

    return colour


def _panel_rows(analysis: Analysis, panel: Panel, colours: Colours, metric: str, dots: str) -> list[ChartRow]:
    return [
        ChartRow("", name, colours(panel, index), found, group.values(dots).tolist())
        for index, (name, group) in enumerate(zip(panel.names, panel.groups, strict=True))
        if (found := analysis.estimate(group, metric))
    ]


def _task_rows(analysis: Analysis, metric: str) -> list[ChartRow]:
    """A row for each group that has the metric, under the name of its task."""
    return [
        ChartRow(task.label, group.algorithm, analysis.algorithms.index(group.algorithm), found)
        for task in analysis.tasks
        for group in task.groups
        if (found := analysis.estimate(group, metric))
    ]


def _capped(title: str, x_label: str, rows: list[ChartRow], *, bars: bool, mark: Sequence[float] = ()) -> RowsPanel:
    note = f"The first {MAX_ROWS} of {len(rows)}; all are in the tables." if len(rows) > MAX_ROWS else ""
    return RowsPanel(title, x_label, rows[:MAX_ROWS], bars, list(mark), note)


def _speed(analysis: Analysis, panels: Sequence[Panel], colours: Colours) -> list[Figure]:
    wanted = (
        ("steady_sps", "steady speed", "environment steps per second"),
        ("compile_seconds", "compilation", "seconds"),
        ("wall_seconds", "training", "seconds of wall time"),
    )
    made = []
    for number, panel in enumerate(panels, 1):
        charts: list[Lines | RowsPanel] = [
            _capped(title, label, rows, bars=True)
            for metric, title, label in wanted
            if (rows := _panel_rows(analysis, panel, colours, metric, metric))
        ]
        if charts:
            made.append(Figure(f"speed_{number:02}_{file_stem(panel.title)}", "speed", panel.title, charts))
    return made


def _speedup(analysis: Analysis, options: Options) -> Figure | None:
    rows = _task_rows(analysis, "speedup_steady_sps")
    label = f"times the steady speed of {options.baseline}"
    return _alone("speedup", "speedup", "Speed-up", _capped("speed-up", label, rows, bars=False, mark=[1.0]))


def _returns(analysis: Analysis, panels: Sequence[Panel], colours: Colours) -> Figure | None:
    charts: list[Lines | RowsPanel] = [
        _capped(panel.title, "final return", rows, bars=False)
        for panel in panels
        if (rows := _panel_rows(analysis, panel, colours, "final_return_iqm", "final_return_mean"))
    ]
    return Figure("returns", "returns", "Final returns", charts) if charts else None


def _equivalence(analysis: Analysis, options: Options) -> Figure | None:
    rows = []
    for pair in analysis.pairs:
        if (found := pair.returns) and found.margin > 0:
            value = Estimate(*(each / found.margin for each in found[:3]))
            colour = analysis.algorithms.index(pair.group.algorithm)
            rows.append(ChartRow(pair.task.label, pair.group.algorithm, colour, value))
    label = f"difference from {options.baseline}, in margins"
    chart = _capped("equivalent if within -1 and 1", label, rows, bars=False, mark=[-1.0, 1.0])
    return _alone("equivalence", "equivalence", "Equivalence", chart)


def _profile(analysis: Analysis) -> Figure | None:
    series = [
        Series(name, analysis.algorithms.index(name), analysis.thresholds, *band, np.zeros((0, len(band.mean))))
        for name, band in analysis.profiles.items()
    ]
    chart = Lines("performance profile", "normalised score τ", "fraction of runs above τ", series)
    return Figure("profile", "all", "Performance profiles", [chart]) if series else None


def _improvement(analysis: Analysis) -> Figure | None:
    rows = [
        ChartRow(row.task, f"{row.ours} over {row.theirs}", analysis.algorithms.index(row.ours), row.estimate)
        for row in sorted(analysis.improvements, key=lambda row: row.task != ALL)
    ]
    for row in rows:
        row.task = "all environments" if row.task == ALL else row.task
    label = "probability that a run ends higher"
    chart = _capped("probability of improvement", label, rows, bars=False, mark=[0.5])
    return _alone("improvement", "all", "Improvement", chart)


def _human(analysis: Analysis) -> Figure | None:
    rows = _task_rows(analysis, "human_normalised_score")
    chart = _capped("human-normalised score", "0 is random play, 1 a human", rows, bars=False, mark=[1.0])
    return _alone("human", "human", "Human-normalised scores", chart)


def _alone(key: str, section: str, title: str, chart: RowsPanel) -> Figure | None:
    return Figure(key, section, title, [chart]) if chart.rows else None
