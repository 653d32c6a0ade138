"""The report as a single HTML page without external resources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.commands.report.charts import Figure
from ppo_bench.commands.report.tables import Table, cell

PAGE = Path(__file__).parent / "page"
SECTIONS = {
    "learning": ("Learning curves", (), "Mean over seeds of the episodic return, its 95% bootstrap band, and each seed "
                 "faintly. Press a name to hide or show its curves."),
    "training": ("Losses, entropy, KL", (), "Mean over seeds of the iterations in each hundredth of the steps, and its "
                 "95% bootstrap band."),
    "speed": ("Speed", ("speed",), "Means with 95% intervals and a dot for each seed. Steady speed is that of a run's "
              "median iteration; compilation is not part of it."),
    "returns": ("Final returns", ("returns",), "Charts: the interquartile mean over seeds, its 95% "
                "interval, and each seed; and means by two hyperparameters. Of many settings one leads by chance."),
    "equivalence": ("Compared with the baseline", ("equivalence", "over_envs"), "Two one-sided t-tests at 5%. "
                    "Undecided: too few seeds. Over all environments: scores on those that every group has finished."),
    "runs": ("Runs, settings and versions", ("runs", "same"), "The last columns are what runs differ in."),
}  # fmt: skip
"""Sections by key: title, keys of tables, and a note."""


def page(
    figures: Sequence[Figure], tables: Sequence[Table], *, title: str, counts: str, warnings: Sequence[str]
) -> str:
    """The page's HTML; all text from run folders is escaped."""
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    template = environment.from_string((PAGE / "template.html").read_text(encoding="utf-8"))
    charts = [[_plain(asdict(chart)) for chart in figure.charts] for figure in figures]
    by_key = {table.key: table for table in tables if table.rows}
    sections = [
        {
            "key": key,
            "title": heading,
            "note": note,
            "figures": [(index, figure) for index, figure in enumerate(figures) if figure.section == key],
            "tables": [by_key[name] for name in names if name in by_key],
        }
        for key, (heading, names, note) in SECTIONS.items()
    ]
    return template.render(
        title=title,
        counts=counts,
        summary=by_key["summary"],
        warnings=warnings,
        sections=[section for section in sections if section["figures"] or section["tables"]],
        css=Markup((PAGE / "style.css").read_text(encoding="utf-8")),
        plotly=Markup((PAGE / "plotly-basic.min.js").read_text(encoding="utf-8")),
        js=Markup((PAGE / "charts.js").read_text(encoding="utf-8")),
        figures=charts,
    )


def _plain(value: Any) -> Any:
    """A chart's values for JSON: numbers rounded to five significant digits, None for NaN and infinities."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
