"""Drawing of charts as SVG and PNG files, for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.commands.report.charts import Figure, Lines, RowsPanel
from ppo_bench.commands.report.formatting import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""The colour-blind safe palette of Okabe and Ito, without yellow, which is hardly visible on white."""
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
ROW_INCHES = 0.25
MARGIN_INCHES = 0.78
LETTER_INCHES = 0.068
TITLE_INCHES = 0.24
BELOW_INCHES = 0.5
RIGHT_INCHES = 0.15
MAX_COLUMNS = 3
MAX_LETTERS = 32
WIDTHS = {1: 5.6, 2: 4.2, 3: 3.6}
"""Width of a chart in inches, by the number of charts side by side."""
STYLE = {
    "text.parse_math": False,  # names may have characters of formulas
    "svg.fonttype": "none",
    "svg.hashsalt": "ppo_bench",  # makes the files reproducible
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.formatter.limits": (-4, 6),
    "legend.frameon": False,
}


def colour(index: int) -> str:
    """The colour with this index; colours repeat."""
    return COLOURS[index % len(COLOURS)]


def clipped(name: str, letters: int = MAX_LETTERS) -> str:
    """`name` cut to at most `letters` characters; tables have the whole name."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def draw(figure: Figure, folder: Path) -> None:
    """Write a figure as `<key>.svg` and `<key>.png` in `folder`."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = min(len(figure.charts), MAX_COLUMNS)
    lines = -(-len(figure.charts) // columns)
    height = max(map(_height, figure.charts))
    letters = max(map(_letters, figure.charts))
    width = WIDTHS[columns] + LETTER_INCHES * max(0, letters - 14)
    names = _legend(figure)
    beside = max(1, int(width * columns / (0.7 + 0.075 * min(2 * MAX_LETTERS, max(map(len, names), default=1)))))
    head = TITLE_INCHES if len(figure.charts) > 1 and figure.section in ("learning", "training", "speed") else 0.0
    foot = TITLE_INCHES * -(-len(names) // beside)
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        # Positions are computed here, since matplotlib's automatic layout takes longer than drawing.
        size = (width * columns, head + height * lines + foot)
        canvas = Canvas(figsize=size)
        FigureCanvasAgg(canvas)
        left = 0.75 if letters == 0 else 0.2 + LETTER_INCHES * letters
        for index, chart in enumerate(figure.charts):
            x = width * (index % columns) + left
            y = foot + height * (lines - 1 - index // columns) + BELOW_INCHES
            box = (x, y, width - left - RIGHT_INCHES, height - MARGIN_INCHES)
            axes = canvas.add_axes((box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]))
            if isinstance(chart, Lines):
                _lines(axes, chart)
            else:
                _rows(axes, chart, (height - MARGIN_INCHES) / ROW_INCHES)
        if head:
            title = clipped(figure.title, 2 * MAX_LETTERS)
            canvas.suptitle(title, fontsize=10, fontweight="bold", y=1 - 0.4 * head / size[1])
        if names:
            drawn = [zip(*reversed(axes.get_legend_handles_labels()), strict=True) for axes in canvas.axes]
            handles = dict(pair for pairs in drawn for pair in pairs)
            shown = [handles[name] for name in names]
            labels = [clipped(name, 2 * MAX_LETTERS) for name in names]
            canvas.legend(shown, labels, loc="lower center", ncols=beside, fontsize=8, handlelength=3)
        canvas.savefig(folder / f"{figure.key}.svg", metadata={"Date": None})
        canvas.savefig(folder / f"{figure.key}.png", dpi=150, metadata={"Software": None})


def _legend(figure: Figure) -> list[str]:
    """Names of the curves of a figure, of which a chart may lack some."""
    curves = [series.name for chart in figure.charts if isinstance(chart, Lines) for series in chart.series]
    return list(dict.fromkeys(curves))


def _letters(chart: Lines | RowsPanel) -> int:
    """Number of letters of the longest name beside the vertical axis."""
    return 0 if isinstance(chart, Lines) else max(len(clipped(row.name)) for row in chart.rows)


def _height(chart: Lines | RowsPanel) -> float:
    if isinstance(chart, Lines):
        return 2.8
    return MARGIN_INCHES + ROW_INCHES * (len(chart.rows) + len({row.task for row in chart.rows if row.task}))


def _lines(axes: Axes, chart: Lines) -> None:
    for series in chart.series:
        paint = colour(series.colour)
        if len(series.runs):
            faint = np.concatenate([series.runs, np.full((len(series.runs), 1), np.nan)], 1)
            axes.plot(np.tile(np.append(series.x, np.nan), len(faint)), faint.ravel(), color=paint, alpha=0.2, lw=0.6)
        axes.fill_between(series.x, series.low, series.high, color=paint, alpha=0.2, lw=0)
        dashes = DASHES[series.colour % len(DASHES)]
        axes.plot(series.x, series.mean, label=series.name, lw=1.6, color=paint, linestyle=dashes)
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label, title=clipped(chart.title))
    axes.set_xlim(left=0 if len(chart.series[0].runs) else None)
    _engineering(axes)


def _rows(axes: Axes, chart: RowsPanel, rows: float) -> None:
    """Draw a `RowsPanel` with space for `rows` rows, so that bars of charts side by side are equally thick."""
    height, ticks, labels, task = 0.0, [], [], ""
    for row in chart.rows:
        if row.task != task:
            task = row.task
            place = axes.get_yaxis_transform()
            axes.text(0.01, height, clipped(task), va="center", fontweight="bold", fontsize=8, transform=place)
            height += 1
        point, low, high = row.value
        paint = colour(row.colour)
        if chart.bars:
            axes.barh(height, point, color=paint, height=0.7, alpha=0.75)
        if row.dots:
            axes.plot(row.dots, [height] * len(row.dots), "o", color=paint, alpha=0.4, ms=3, mew=0)
        if np.isfinite(low):
            axes.plot([low, high], [height, height], color="black" if chart.bars else paint, lw=1.6)
        if not chart.bars:
            axes.plot(point, height, "D", color=paint, ms=5)
        end = np.nanmax([point, high, *row.dots])
        axes.annotate(short(point), (end, height), xytext=(5, 0), textcoords="offset points", va="center", fontsize=7.5)
        ticks.append(height)
        labels.append(clipped(row.name))
        height += 1
    for value in chart.mark:
        axes.axvline(value, color="#777777", lw=0.8, ls=(0, (4, 3)))
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(max(height, rows) - 0.3, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.14)
    axes.set(xlabel=chart.x_label, title=clipped(chart.title))
    if chart.bars:
        axes.set_xlim(left=0)
    _engineering(axes)


def _engineering(axes: Axes) -> None:
    """Format large numbers on the horizontal axis as 20k and 1M."""
    from matplotlib.ticker import EngFormatter

    if max(map(abs, axes.get_xlim())) >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
