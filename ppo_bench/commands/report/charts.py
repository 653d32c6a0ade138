"""The charts of a report as data: page.py shows them in a browser by plotly, figures.py writes them by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.analysis import ALL, Analysis
from ppo_bench.commands.report.curves import curves
from ppo_bench.commands.report.database import Database
from ppo_bench.commands.report.groups import ComparedTask, Group, differing, rank, value_text
from ppo_bench.commands.report.statistics import Array, Estimate

STEPS = ("by environment steps", "environment steps")
TIME = ("by wall time", "training time without compilation (s)")
SPEEDS = (
    ("steady_sps", "steady speed", "environment steps per second"),
    ("compile_seconds", "compilation", "seconds"),
    ("wall_seconds", "training", "seconds of wall time"),
)
MAX_SERIES = 8
"""Maximum number of curves in a chart, so that they remain distinguishable."""
MAX_ROWS = 60
"""Maximum number of bars in a chart."""


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
class Bar:
    """A bar, or a point, with its interval."""

    name: str
    colour: int
    value: Estimate
    dots: list[float] = field(default_factory=list)
    """Values of the single runs."""


@dataclass
class Bars:
    """A chart with a horizontal bar, or a point, in each row."""

    title: str
    x_label: str
    rows: list[Bar]
    marks: list[float] = field(default_factory=list)
    """Values at which a vertical line is drawn."""
    from_zero: bool = False
    """Whether values are bars from 0, or points."""
    note: str = ""


@dataclass
class HeatMap:
    """Mean final returns by the values of two hyperparameters."""

    title: str
    x_label: str
    y_label: str
    x: list[str]
    y: list[str]
    values: Array
    """`[len(y), len(x)]`; NaN where nothing was trained."""


@dataclass
class Figure:
    """Charts side by side, with the section of the page to which they belong."""

    key: str
    section: str
    title: str
    charts: Sequence[Lines | Bars | HeatMap]


class Entry(NamedTuple):
    """A group in a panel, with its name there."""

    name: str
    colour: int
    group: Group


class Panel(NamedTuple):
    """Groups that share a chart."""

    title: str
    entries: list[Entry]


def figures(analysis: Analysis, database: Database, baseline: str) -> list[Figure]:
    """All figures that are not empty."""
    panels = list(_panels(analysis))
    returns = [
        _bars(analysis, panel, "final_return_iqm", "final_return_mean", panel.title, "final return") for panel in panels
    ]
    made = [
        *_curves(panels, database),
        *(
            Figure(
                f"speed_{_stem(number, panel)}",
                "speed",
                panel.title,
                [_bars(analysis, panel, metric, metric, *about, from_zero=True) for metric, *about in SPEEDS],
            )
            for number, panel in enumerate(panels, 1)
        ),
        *_comparisons(analysis, baseline),
        Figure("returns", "returns", "Final returns", returns),
        Figure("heat_maps", "heat_maps", "Two hyperparameters", list(_heat_maps(analysis))),
    ]
    for figure in made:
        figure.charts = [chart for chart in figure.charts if not isinstance(chart, Bars) or chart.rows]
        for chart in figure.charts:
            if isinstance(chart, Bars) and len(chart.rows) > MAX_ROWS:
                chart.note = f"The first {MAX_ROWS} of {len(chart.rows)}; all are in the tables."
                del chart.rows[MAX_ROWS:]
    return [figure for figure in made if figure.charts]


def _panels(analysis: Analysis) -> Iterator[Panel]:
    """A panel for each task with several groups, and one for all other tasks of an environment together."""
    for env in dict.fromkeys(task.env for task in analysis.tasks):
        own = [task for task in analysis.tasks if task.env == env]
        alone = [task for task in own if len(task.groups) == 1]
        for task in own if len(alone) == 1 else [task for task in own if task not in alone]:
            entries = [Entry(group.name, analysis.names.index(group.name), group) for group in task.groups]
            yield Panel(task.label, entries)
        if len(alone) > 1:
            groups = [task.groups[0] for task in alone]
            names = [group.task.removeprefix(env).strip() for group in groups]
            if len({group.name for group in groups}) > 1:
                names = [f"{group.name} · {name}" for group, name in zip(groups, names, strict=True)]
            title = env if len(alone) == len(own) else f"{env}, others"
            yield Panel(title, [Entry(*entry) for entry in zip(names, range(len(groups)), groups, strict=True)])


def _curves(panels: Sequence[Panel], database: Database) -> Iterator[Figure]:
    """Returns over steps and time for each panel, then other columns over steps."""
    best = [_best(panel.entries) for panel in panels]
    runs = [entry.group.runs for entries in best for entry in entries]

    def charts(title: str, x_label: str, y_label: str, axis: str, column: str, weight: str) -> list[Lines]:
        """A chart of a column for each panel."""
        found = iter(curves(database.connection, runs, axis, column, weight))
        made = []
        for panel, entries in zip(panels, best, strict=True):
            of_returns, left = weight == "episodes", len(panel.entries) - len(entries)
            note = f"{left} more, which end lower, are in the tables." if left and of_returns else ""
            series = [
                Series(name, colour, *(curve if of_returns else curve._replace(runs=curve.runs[:0])))
                for (name, colour, _), curve in zip(entries, found, strict=False)
                if of_returns or np.isfinite(curve.mean).any()
            ]
            made.append(Lines(title, x_label, y_label, series, note))
        return made

    returns = [
        charts(*about, "episodic return", axis, "episodic_return", "episodes")
        for about, axis in ((STEPS, "global_step"), (TIME, "training_seconds"))
    ]
    others = [charts(name.replace("_", " "), STEPS[1], "", "global_step", name, "1") for name in database.drawn]
    for section, rows in (("learning", returns), ("training", others)):
        for number, (panel, *shown) in enumerate(zip(panels, *rows, strict=True), 1):
            yield Figure(
                f"{section}_{_stem(number, panel)}", section, panel.title, [each for each in shown if each.series]
            )


def _best(entries: Sequence[Entry]) -> list[Entry]:
    """The `MAX_SERIES` entries with the highest returns, in order."""

    def final(entry: Entry) -> float:
        found = [run.recent_return_mean for run in entry.group.runs if run.recent_return_mean is not None]
        return float(np.mean(found)) if found else -np.inf

    return sorted(sorted(entries, key=final, reverse=True)[:MAX_SERIES], key=entries.index)


def _stem(number: int, panel: Panel) -> str:
    """Part of a file name: the panel's number, and letters, digits and underscores of its title."""
    return f"{number:02}_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in panel.title)[:40]


def _bars(
    analysis: Analysis, panel: Panel, metric: str, dots: str, title: str, label: str, *, from_zero: bool = False
) -> Bars:
    """A row for each group of a panel, with a dot for each seed."""
    rows = [
        Bar(name, colour, found, group.values(dots).tolist())
        for name, colour, group in panel.entries
        if (found := analysis.of(group).get(metric))
    ]
    return Bars(title, label, rows, from_zero=from_zero)


def _comparisons(analysis: Analysis, baseline: str) -> Iterator[Figure]:
    """Charts with a row for each group and task."""

    def bar(task: ComparedTask, group: Group, value: Estimate) -> Bar:
        name = f"{task.label}: {group.name}" if len(analysis.tasks) > 1 else group.name
        return Bar(name, analysis.names.index(group.name), value)

    groups = [(task, group, analysis.of(group)) for task in analysis.tasks for group in task.groups]
    speedups = [bar(task, group, of["speedup_steady_sps"]) for task, group, of in groups if "speedup_steady_sps" in of]
    label = f"times the steady speed of {baseline}"
    yield Figure("speedup", "speedup", "Speed-up", [Bars("speed-up", label, speedups, [1.0])])
    differences = [
        bar(task, group, Estimate(test.difference / test.margin, test.low / test.margin, test.high / test.margin))
        for task, group, _, test, _ in analysis.pairs
        if test.margin > 0
    ]
    label = f"difference from {baseline}, in margins"
    chart = Bars("equivalent if within -1 and 1", label, differences, [-1.0, 1.0])
    yield Figure("equivalence", "equivalence", "Equivalence", [chart])
    improvements = [
        Bar(f"{'all environments' if env == ALL else env}: {ours} over {theirs}", analysis.names.index(ours), value)
        for env, ours, theirs, value in sorted(analysis.improvements, key=lambda row: row[0] != ALL)
    ]
    chart = Bars("probability of improvement", "probability that a run ends higher", improvements, [0.5])
    yield Figure("improvement", "all", "Probability of improvement", [chart])


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
            if mean := analysis.of(group).get("final_return_mean"):
                values[y.index(row), x.index(column)] = mean.point
        if np.isfinite(values).any():
            yield HeatMap(f"{env}, {framework}", keys[1], keys[0], x, y, values)
