"""The charts of a report as data: page.py shows them in a browser by plotly, figures.py writes them by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.report.analysis import Analysis
from ppo_bench.commands.report.curves import Curves, curves
from ppo_bench.commands.report.database import Database
from ppo_bench.commands.report.groups import Group, differing, rank
from ppo_bench.commands.report.statistics import Array, Estimate
from ppo_bench.common.values import file_name

STEPS = ("by environment steps", "environment steps")
TIME = ("by wall time", "training time without compilation (s)")
SPEED_CHARTS = (
    ("steady_sps", "steady speed", "environment steps per second"),
    ("compile_seconds", "compilation", "seconds"),
    ("wall_seconds", "training", "seconds of wall time"),
)
COMPARISONS: tuple[tuple[Any, ...], ...] = (
    ("speedup_steady_sps", "speed-up", "times the baseline's steady speed", 1.0),
    ("difference_in_margins", "equivalent within -1 and 1", "difference from the baseline, in margins", -1.0, 1.0),
    ("probability_of_improvement", "improvement", "probability of a return above the baseline's", 0.5),
)
"""Metrics with their titles, labels and values to mark."""
MAX_SERIES = 8
"""Maximum number of curves in a chart, so that they remain distinguishable."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b85590", "#c78500", "#2f92c9", "#555555")
"""A palette for the colour-blind, after Okabe and Ito's; page/style.css has it too, with one for dark screens."""


@dataclass
class Series:
    """The curves of a group in a chart."""

    name: str
    colour: int
    curve: Curves


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


SUMMARIES = ("returns", "heat_maps", "comparisons")
"""Keys of the figures that exist once in a report."""


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


def figures(analysis: Analysis, database: Database) -> list[Figure]:
    """All figures that are not empty."""
    panels = list(_panels(analysis))
    returns = [
        _bars(analysis, panel, "final_return_iqm", "final_return_mean", panel.title, "final return") for panel in panels
    ]
    made = [
        *_curves(panels, database),
        *(
            Figure(
                f"speed_{number:02}_{file_name(panel.title)[:40]}",
                "speed",
                panel.title,
                [_bars(analysis, panel, metric, metric, *about, from_zero=True) for metric, *about in SPEED_CHARTS],
            )
            for number, panel in enumerate(panels, 1)
        ),
        Figure("returns", "returns", "Final returns", returns),
        Figure("heat_maps", "returns", "Two hyperparameters", list(_heat_maps(analysis))),
        Figure("comparisons", "equivalence", "Compared with the baseline", list(_comparisons(analysis))),
    ]
    for figure in made:
        figure.charts = [chart for chart in figure.charts if not isinstance(chart, Bars) or chart.rows]
    return [figure for figure in made if figure.charts]


def _panels(analysis: Analysis) -> Iterator[Panel]:
    """A panel for each task, or one for an environment whose tasks have a group each, as in a sweep."""
    for env in dict.fromkeys(task.env for task in analysis.tasks):
        own = [task for task in analysis.tasks if task.env == env]
        groups = [group for task in own for group in task.groups]
        if len(groups) == len(own) > 1:
            prefixes = [f"{group.name} · " if len(analysis.names) > 1 else "" for group in groups]
            settings = [group.task.removeprefix(env).strip() for group in groups]
            names = [prefix + setting for prefix, setting in zip(prefixes, settings, strict=True)]
            yield Panel(env, [Entry(names[k], k, group) for k, group in enumerate(groups)])
            continue
        for task in own:
            entries = [Entry(group.name, analysis.names.index(group.name), group) for group in task.groups]
            yield Panel(task.label, entries)


def _curves(panels: Sequence[Panel], database: Database) -> Iterator[Figure]:
    """Returns over steps and time for each panel, then other columns over steps."""
    best = [_best(panel.entries) for panel in panels]
    runs = [entry.group.runs for entries in best for entry in entries]

    def charts(title: str, x_label: str, y_label: str, axis: str, column: str) -> list[Lines]:
        """A chart of a column for each panel."""
        found = iter(curves(database.connection, runs, axis, column))
        made = []
        for panel, entries in zip(panels, best, strict=True):
            of_returns, left = column == "episodic_return", len(panel.entries) - len(entries)
            note = f"{left} more, which end lower, are in the tables." if left and of_returns else ""
            series = [
                Series(name, colour, curve if of_returns else replace(curve, runs=curve.runs[:0]))
                for (name, colour, _), curve in zip(entries, found, strict=False)
                if of_returns or np.isfinite(curve.mean).any()
            ]
            made.append(Lines(title, x_label, y_label, series, note))
        return made

    returns = [
        charts(*about, "episodic return", axis, "episodic_return")
        for about, axis in ((STEPS, "global_step"), (TIME, "training_seconds"))
    ]
    others = [charts(name.replace("_", " "), STEPS[1], "", "global_step", name) for name in database.drawn]
    for section, rows in (("learning", returns), ("training", others)):
        for number, (panel, *shown) in enumerate(zip(panels, *rows, strict=True), 1):
            key = f"{section}_{number:02}_{file_name(panel.title)[:40]}"
            yield Figure(key, section, panel.title, [each for each in shown if each.series])


def _best(entries: Sequence[Entry]) -> list[Entry]:
    """The `MAX_SERIES` entries with the highest returns, in order."""

    def final(entry: Entry) -> float:
        found = [run.recent_return_mean for run in entry.group.runs]
        return float(np.mean([-np.inf if each is None else each for each in found]))

    return sorted(sorted(entries, key=final, reverse=True)[:MAX_SERIES], key=entries.index)


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


def _comparisons(analysis: Analysis) -> Iterator[Bars]:
    """Charts with a row for each task and group that is compared with the baseline."""
    for metric, title, label, *marks in COMPARISONS:
        rows = [
            Bar(f"{env}: {name}", analysis.names.index(name), found[metric])
            for (env, name), found in analysis.estimates.items()
            if metric in found
        ]
        yield Bars(title, label, rows, marks)


def _heat_maps(analysis: Analysis) -> Iterator[HeatMap]:
    """A heat map for each environment and way of executing whose runs differ in exactly two hyperparameters."""
    of: dict[tuple[str, str, str], list[Group]] = {}
    for task in analysis.tasks:
        for group in task.groups:
            of.setdefault((task.env, group.runs[0].framework, str(group.runs[0].execution)), []).append(group)
    for (env, framework, _), groups in of.items():
        keys = differing([group.runs[0].setting for group in groups])
        if len(keys) != 2:
            continue
        places = [tuple(str(group.runs[0].setting.get(key)) for key in keys) for group in groups]
        y, x = (sorted({place[k] for place in places}, key=rank) for k in (0, 1))
        values = np.full((len(y), len(x)), np.nan)
        for (row, column), group in zip(places, groups, strict=True):
            if mean := analysis.of(group).get("final_return_mean"):
                values[y.index(row), x.index(column)] = mean.point
        yield HeatMap(f"{env}, {framework}", keys[1], keys[0], x, y, values)
