"""Aligned columns of text."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]], right: Container[int] = ()) -> str:
    """Rows as lines of aligned columns; those whose indices are in `right` are flush right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = enumerate(zip(row, widths, strict=True))
        return "  ".join(cell.rjust(width) if k in right else cell.ljust(width) for k, (cell, width) in cells).rstrip()

    return "\n".join(map(line, rows))
