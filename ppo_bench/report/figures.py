"""Charts as SVG and PNG, for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_bench.report.charts import Figure, Lines, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""Okabe and Ito's, which the colour-blind can tell apart, without the yellow that white paper swallows."""
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
ROW_INCHES = 0.27
STYLE = {
    "text.parse_math": False,  # names are no formulas
    "svg.fonttype": "none",
    "svg.hashsalt": "ppo_bench",  # the same figure is the same file
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.formatter.limits": (-4, 6),
    "legend.frameon": False,
}


def colour(index: int) -> str:
    """Of the series with this number."""
    return COLOURS[index % len(COLOURS)]


def draw(figure: Figure, folder: Path) -> None:
    """Write `<key>.svg` and `<key>.png`."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        rows = max((_height(chart) for chart in figure.charts), default=0.0)
        width = 3.6 if len(figure.charts) > 2 else 4.2 if len(figure.charts) > 1 else 5.6
        canvas = Canvas(figsize=(width * len(figure.charts), max(rows, 2.2)), layout="constrained")
        FigureCanvasAgg(canvas)
        for axes, chart in zip(canvas.subplots(1, len(figure.charts), squeeze=False)[0], figure.charts, strict=True):
            (_lines if isinstance(chart, Lines) else _rows)(axes, chart)  # type: ignore[arg-type]
        if isinstance(figure.charts[0], Lines):
            canvas.suptitle(figure.title, fontsize=10, fontweight="bold")
        canvas.savefig(folder / f"{figure.key}.svg", metadata={"Date": None})
        canvas.savefig(folder / f"{figure.key}.png", dpi=150, metadata={"Software": None})


def _height(chart: Lines | Rows) -> float:
    if isinstance(chart, Lines):
        return 3.0 + 0.17 * max(0, len(chart.series) - 3)
    return 0.9 + ROW_INCHES * (len(chart.rows) + len({row.task for row in chart.rows}))


def _lines(axes: Axes, chart: Lines) -> None:
    for series in chart.series:
        style: dict[str, Any] = {"color": colour(series.colour), "linestyle": DASHES[series.colour % len(DASHES)]}
        if len(series.runs):
            faint = np.concatenate([series.runs, np.full((len(series.runs), 1), np.nan)], 1)
            axes.plot(
                np.tile(np.append(series.x, np.nan), len(faint)), faint.ravel(), color=style["color"], alpha=0.2, lw=0.6
            )
        axes.fill_between(series.x, series.low, series.high, color=style["color"], alpha=0.2, lw=0)
        axes.plot(series.x, series.mean, label=series.name, lw=1.6, **style)
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label, title=chart.title)
    axes.set_xlim(left=0 if len(chart.series[0].runs) else None)
    axes.legend(loc="best", fontsize=8)


def _rows(axes: Axes, chart: Rows) -> None:
    height, ticks, labels, task = 0.0, [], [], None
    for row in chart.rows:
        if row.task != task:
            task = row.task
            axes.annotate(
                task, (0, height), xycoords=("axes fraction", "data"), xytext=(-4, 0), textcoords="offset points",
                ha="right", va="center", fontweight="bold", fontsize=8.5,
            )  # fmt: skip
            height += 1
        point, low, high = row.value
        if chart.bars:
            axes.barh(height, point, color=colour(row.colour), height=0.7, alpha=0.75)
        if row.dots:
            axes.plot(row.dots, [height] * len(row.dots), "o", color=colour(row.colour), alpha=0.4, ms=3, mew=0)
        if np.isfinite(low):
            axes.plot([low, high], [height, height], color="black" if chart.bars else colour(row.colour), lw=1.6)
        if not chart.bars:
            axes.plot(point, height, "D", color=colour(row.colour), ms=5)
        ticks.append(height)
        labels.append(row.name)
        height += 1
    for value in chart.mark:
        axes.axvline(value, color="#777777", lw=0.8, ls=(0, (4, 3)))
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(height - 0.3, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel=chart.x_label, title=chart.title)
    if chart.bars:
        axes.set_xlim(left=0)
