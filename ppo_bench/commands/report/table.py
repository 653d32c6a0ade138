"""A table, and its export as CSV and Markdown."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.formatting import cell, interval
from ppo_bench.commands.report.statistics import Estimate


class Table(NamedTuple):
    """A table of the report; cells are text, numbers, `Estimate`s or None."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


def to_csv(table: Table) -> str:
    """The table as CSV, with all digits; an estimate takes three columns."""
    spread = [any(isinstance(row[k], Estimate) for row in table.rows) for k in range(len(table.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header: list[str] = []
    for name, wide in zip(table.columns, spread, strict=True):
        header += [name, f"{name} low", f"{name} high"] if wide else [name]
    writer.writerow(header)
    for row in table.rows:
        cells: list[Any] = []
        for value, wide in zip(row, spread, strict=True):
            cells += (list(value) if value else [None] * 3) if wide else [value]
        writer.writerow([_plain(value) for value in cells])
    return file.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown; markup in its cells is escaped."""

    def text(value: Any) -> str:
        shown = interval(value) if isinstance(value, Estimate) else cell(value)
        return html.escape(shown, quote=False).replace("|", "\\|").replace("\n", " ")

    def line(cells: Iterable[Any]) -> str:
        return f"| {' | '.join(text(value) for value in cells)} |"

    rule = "|" + "---|" * len(table.columns)
    note = f"\n{table.note}\n" if table.note else ""
    return "\n".join([f"# {table.title}\n{note}", line(table.columns), rule, *map(line, table.rows)]) + "\n"
