"""The report as a single HTML page without external resources."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from ppo_bench.commands.report.charts import Figure
from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.commands.report.tables import Table, cell

PAGE = Path(__file__).parent / "page"
OPEN_ROWS = 40
"""Maximum number of rows of a table that is shown unfolded."""
SECTIONS = {
    "learning": ("Learning curves", (), "Mean over seeds of the episodic return, its 95% bootstrap band, and each seed "
                 "faintly."),
    "training": ("Losses, entropy, KL", (), "Mean over seeds of the iterations in each hundredth of the steps, and its "
                 "95% bootstrap band."),
    "speed": ("Speed", ("speed",), "Means with 95% intervals and a dot for each seed. Steady speed is that of a run's "
              "median iteration; compilation is not part of it."),
    "speedup": ("Speed-up", (), "Ratios of steady speeds with 95% intervals; the baseline is at 1."),
    "returns": ("Final returns", ("returns", "scales"), "Charts: the interquartile mean over seeds, its 95% interval, "
                "and each seed. Table: best first; of many settings one leads by chance."),
    "heat_maps": ("Two hyperparameters", (), "Mean final return by the values of the two hyperparameters."),
    "equivalence": ("Do they learn the same?", ("equivalence",), "Undecided: too few seeds to tell."),
    "all": ("Improvement", ("improvement", "over_envs"), "The chance that a run of the first ends above one of the "
            "second. Over all environments: normalised scores on those that every group has finished."),
    "published": ("Ours and published", ("references",), "Mean ± standard deviation (seeds). Ids and steps often "
                  "differ: compare them first."),
    "runs": ("Runs, settings and versions", ("runs", "same", "left_out"), "The last columns are what runs differ in."),
}  # fmt: skip
"""Sections by key: title, keys of tables, and a note."""


def page(
    figures: Sequence[Figure],
    pictures: Mapping[str, bytes],
    tables: Sequence[Table],
    *,
    title: str,
    counts: str,
    warnings: Sequence[str],
    method: str,
) -> str:
    """The page's HTML; `pictures` are the figures' SVG by their keys. All text from run folders is escaped."""
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    environment.tests["numeric"] = lambda value: isinstance(value, int | float | Estimate)
    template = environment.from_string((PAGE / "template.html").read_text(encoding="utf-8"))
    by_key = {table.key: table for table in tables}
    sections = [
        {
            "key": key,
            "title": heading,
            "note": note,
            "figures": [figure for figure in figures if figure.section == key],
            "tables": [by_key[name] for name in names if name in by_key],
        }
        for key, (heading, names, note) in SECTIONS.items()
    ]
    return template.render(
        title=title,
        counts=counts,
        summary=by_key["summary"],
        warnings=warnings,
        method=method,
        sections=[section for section in sections if section["figures"] or section["tables"]],
        pictures={name: b64encode(svg).decode() for name, svg in pictures.items()},
        open_rows=OPEN_ROWS,
        css=Markup((PAGE / "style.css").read_text(encoding="utf-8")),
    )
