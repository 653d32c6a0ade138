"""Charts as data: page.py shows them in a browser by plotly, figures.py writes them as files by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ppo_bench.commands.report.statistics import Array, Estimate

STEPS = ("by environment steps", "environment steps")
TIME = ("by wall time", "training time without compilation (s)")


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
    from_zero: bool
    """Whether values are bars from 0, or points."""
    marks: list[float] = field(default_factory=list)
    """Values at which a vertical line is drawn."""
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
    note: str = ""


Chart = Lines | Bars | HeatMap


@dataclass
class Figure:
    """Charts side by side, with the section of the page to which they belong."""

    key: str
    section: str
    title: str
    charts: Sequence[Chart]
