"""The report as a single HTML page without external resources."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.commands.report.charts import Figure, Lines, RowsPanel
from ppo_bench.commands.report.formatting import cell, interval
from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.commands.report.summary import Paragraph
from ppo_bench.commands.report.table import Table

PAGE = Path(__file__).parent / "page"
OPEN_ROWS = 40
"""Maximum number of rows of a table that is shown unfolded."""
SECTIONS = {
    "learning": ("Learning curves", (), "Mean over seeds of the episodic return, its 95% bootstrap band, and each seed "
                 "faintly. Point at a curve for its numbers; press a name to hide or show it."),
    "training": ("Losses, entropy, KL", (), "Mean over seeds of the iterations in each hundredth of the steps, and its "
                 "95% bootstrap band. docs/report.md says how each is measured."),
    "speed": ("Speed", (), "Bars with 95% intervals and a dot for each seed. Steady speed, compilation and "
              "training time are three figures, never mixed."),
    "speedup": ("Speed-up", ("speed",), "Ratios of steady speeds with 95% intervals; the baseline is at 1."),
    "returns": ("Final returns", ("settings_over_envs", "ranking", "returns"), "The interquartile mean over seeds, "
                "its 95% interval, and each seed."),
    "equivalence": ("Do they learn the same?", ("equivalence",), ""),
    "all": ("Profiles and improvement", ("over_envs", "improvement"), ""),
    "human": ("Human-normalised scores", ("human",), ""),
    "published": ("Ours and published", ("references",), ""),
    "settings": ("Hyperparameters", ("settings", "settings_same"), ""),
    "runs": ("Runs, hardware and versions", ("same", "runs", "left_out"), ""),
}  # fmt: skip
"""Sections by key: title, keys of tables, and a note."""
SMOOTHED = ("learning", "training")
"""Sections whose curves the reader can smooth."""


def page(
    figures: Sequence[Figure],
    tables: Sequence[Table],
    *,
    counts: str,
    summary: Sequence[Paragraph],
    warnings: Sequence[str],
    method: str,
) -> str:
    """The page's HTML; all text from run folders is escaped."""
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((PAGE / "template.html").read_text(encoding="utf-8"))
    # The first "</" would end the script element, also inside a JSON string.
    data = json.dumps([[_chart(chart) for chart in figure.charts] for figure in figures], allow_nan=False)
    escaped = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return template.render(
        title="ppo_bench report",
        counts=counts,
        summary=summary,
        warnings=warnings,
        method=method,
        sections=_sections(figures, tables),
        css=Markup((PAGE / "style.css").read_text(encoding="utf-8")),
        js=Markup((PAGE / "charts.js").read_text(encoding="utf-8")),
        data=Markup(escaped),
    )


def _sections(figures: Sequence[Figure], tables: Sequence[Table]) -> list[dict[str, Any]]:
    by_key = {table.key: table for table in tables}
    sections = []
    for key, (title, names, note) in SECTIONS.items():
        own = [
            {"title": figure.title, "charts": figure.charts, "index": index}
            for index, figure in enumerate(figures)
            if figure.section == key
        ]
        found = [_table(by_key[name]) for name in names if name in by_key]
        if own or found:
            smooth = key in SMOOTHED and bool(own)
            sections.append(
                {"key": key, "title": title, "note": note, "figures": own, "tables": found, "smooth": smooth}
            )
    return sections


def _table(table: Table) -> dict[str, Any]:
    rows = [
        [
            {
                "text": interval(value) if isinstance(value, Estimate) else cell(value),
                "number": isinstance(value, int | float | Estimate) and not isinstance(value, bool),
            }
            for value in row
        ]
        for row in table.rows
    ]
    short = len(rows) <= OPEN_ROWS
    return {"title": table.title, "note": table.note, "columns": table.columns, "rows": rows, "open": short}


def _chart(chart: Lines | RowsPanel) -> dict[str, Any]:
    about = {"title": chart.title, "x_label": chart.x_label, "note": chart.note}
    if isinstance(chart, Lines):
        series = [
            {"name": each.name, "colour": each.colour}
            | {key: _numbers(getattr(each, key)) for key in ("x", "mean", "low", "high")}
            | {"runs": [_numbers(run) for run in each.runs]}
            for each in chart.series
        ]
        return about | {"kind": "lines", "y_label": chart.y_label, "series": series}
    rows = [
        {"task": row.task, "name": row.name, "colour": row.colour}
        | {"value": _numbers(row.value), "dots": _numbers(row.dots)}
        for row in chart.rows
    ]
    return about | {"kind": "rows", "rows": rows, "bars": chart.bars, "mark": chart.mark}


def _numbers(values: Any) -> list[float | None]:
    """Numbers for the page, rounded to five significant digits, with None for NaN and infinities."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]
