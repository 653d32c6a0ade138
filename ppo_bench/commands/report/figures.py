"""Charts as SVG and PNG files, for papers."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.commands.report.charts import COLOURS, Bars, Figure, HeatMap, Lines
from ppo_bench.commands.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", ":", "-.")
MAX_COLUMNS = 3
STYLE = {
    "text.parse_math": False,  # names may have characters of formulas
    "svg.fonttype": "none",
    "svg.hashsalt": "ppo_bench",  # makes the files reproducible
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def draw(figure: Figure, folder: Path) -> None:
    """Write a figure as `<key>.svg` and `<key>.png` in `folder`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    columns = min(len(figure.charts), MAX_COLUMNS)
    lines = -(-len(figure.charts) // columns)
    bars = max((len(chart.rows) for chart in figure.charts if isinstance(chart, Bars)), default=0)
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        size = (4.6 * columns, lines * (1.2 + 0.25 * bars if bars else 3.2))
        canvas = Canvas(figsize=size, layout="constrained")
        for index, chart in enumerate(figure.charts):
            axes = canvas.add_subplot(lines, columns, index + 1)
            if isinstance(chart, Lines):
                _lines(axes, chart)
            elif isinstance(chart, Bars):
                _bars(axes, chart)
            else:
                _heat_map(axes, chart)
            axes.set(xlabel=chart.x_label, title=chart.title)
        if len(figure.charts) > 1:
            canvas.suptitle(figure.title, fontsize=10, fontweight="bold")
        named = {
            name: line for axes in canvas.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if named:
            canvas.legend(named.values(), named, loc="outside lower center", ncols=columns)
        canvas.savefig(folder / f"{figure.key}.svg", metadata={"Date": None})
        canvas.savefig(folder / f"{figure.key}.png", dpi=150, metadata={"Software": None})


def _lines(axes: Axes, chart: Lines) -> None:
    for series in chart.series:
        paint = COLOURS[series.colour % len(COLOURS)]
        axes.plot(series.curve.x, series.curve.runs.T, color=paint, alpha=0.2, lw=0.6)
        axes.fill_between(series.curve.x, series.curve.low, series.curve.high, color=paint, alpha=0.2, lw=0)
        dashes = DASHES[series.colour % len(DASHES)]
        axes.plot(series.curve.x, series.curve.mean, label=series.name, lw=1.6, color=paint, linestyle=dashes)
    axes.set_ylabel(chart.y_label)


def _bars(axes: Axes, chart: Bars) -> None:
    for height, row in enumerate(chart.rows):
        point, low, high, _ = row.value
        paint = COLOURS[row.colour % len(COLOURS)]
        if chart.from_zero:
            axes.barh(height, point, color=paint, height=0.7, alpha=0.75)
        else:
            axes.plot(point, height, "D", color=paint, ms=5)
        axes.plot(row.dots, [height] * len(row.dots), "o", color=paint, alpha=0.4, ms=3, mew=0)
        axes.plot([low, high], [height, height], color="black" if chart.from_zero else paint, lw=1.6)
    for value in chart.marks:
        axes.axvline(value, color="#777777", lw=0.8, ls="--")
    axes.set_yticks(range(len(chart.rows)), [fill(row.name, 40) for row in chart.rows], fontsize=8)
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    if chart.from_zero:
        axes.set_xlim(left=0)


def _heat_map(axes: Axes, chart: HeatMap) -> None:
    axes.imshow(chart.values, cmap="Blues", aspect="auto", alpha=0.7)
    axes.set_xticks(range(len(chart.x)), chart.x)
    axes.set_yticks(range(len(chart.y)), chart.y)
    axes.set_ylabel(chart.y_label)
    for (row, column), value in np.ndenumerate(chart.values):
        axes.text(column, row, number(value), ha="center", va="center", fontsize=8)
