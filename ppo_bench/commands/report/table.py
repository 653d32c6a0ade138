"""A table, and its text as CSV, Markdown and columns of a terminal."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.common.columns import aligned


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
        writer.writerow([None if isinstance(each, float) and not math.isfinite(each) else each for each in cells])
    return file.getvalue()


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown; markup in its cells is escaped."""

    def line(cells: Iterable[Any]) -> str:
        texts = (html.escape(cell(value), quote=False).replace("|", "\\|").replace("\n", " ") for value in cells)
        return f"| {' | '.join(texts)} |"

    rule = "|" + "---|" * len(table.columns)
    note = f"\n{table.note}\n" if table.note else ""
    return "\n".join([f"# {table.title}\n{note}", line(table.columns), rule, *map(line, table.rows)]) + "\n"


def to_text(table: Table, most_rows: int) -> str:
    """The first rows of the table in aligned columns; columns without any value are left out."""
    kept = [k for k in range(len(table.columns)) if any(cell(row[k]) for row in table.rows)]
    lines = [[table.columns[k] for k in kept], *([cell(row[k]) for k in kept] for row in table.rows[:most_rows])]
    more = len(table.rows) - most_rows
    return aligned(lines) + (f"\n{more} more rows are in the tables" if more > 0 else "")


def cell(value: Any) -> str:
    """The text of a table's cell."""
    if value is None:
        return ""
    if isinstance(value, Estimate):
        low, high = number(value.low), number(value.high)
        return f"{number(value.point)} [{low}, {high}]" if math.isfinite(value.low) else number(value.point)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def number(value: float | None) -> str:
    """A number with four significant digits and thousands separators; empty if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 6 else f"{value:.3g}"
