"""SQL for reading JSON-lines files by DuckDB, and their columns."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

MAX_LINE_BYTES = 1 << 25
LAST_BYTES = 1 << 16
TAKEN = frozenset(("file", "filename", "folder", "backend", "framework", "seed"))
"""Names of the columns that identify a row's run; columns of files cannot have them."""
NAME = r"[a-z][\w./-]*"
"""Pattern of the names of columns; that of a number of `env.info` has its name after `info_`."""
WHOLE = frozenset(("iteration", "global_step", "episodes", "env", "length"))
"""Columns of integers; all others are floats."""


def rows_of(files: Iterable[Path], columns: Iterable[str]) -> str:
    """An SQL subquery for the rows of JSON-lines files, with the column `file` and `columns`.

    Rows of lines that are not valid JSON are null.
    """
    types = ", ".join(f"'{_quoted(name)}': '{'BIGINT' if name in WHOLE else 'DOUBLE'}'" for name in columns)
    names = ", ".join(f"'{_quoted(_pattern(str(path)))}'" for path in files)
    return (
        f"(select * rename (filename as file) from read_json([{names}], format='newline_delimited', filename=true, "
        # A folder that is named seed=3 is no column.
        f"hive_partitioning=false, ignore_errors=true, maximum_object_size={MAX_LINE_BYTES}, columns={{{types}}}))"
    )


def _pattern(path: str) -> str:
    """`path` as a glob pattern that matches it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def columns_of(files: Sequence[Path], known: Sequence[str]) -> list[str]:
    """The `known` columns, and further ones of the first and last rows of the files.

    First rows alone do not suffice: columns of `env.info` appear only after the first episode has ended.
    """
    names, taken = list(known), {*known, *TAKEN}
    for path in files:
        for line in _ends(path):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            for name in row if isinstance(row, dict) else ():
                if name.lower() not in taken and re.fullmatch(NAME, name):
                    taken.add(name.lower())  # SQL tells no capitals from small letters
                    names.append(name)
    return names


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last line of a file; the last one may be incomplete."""
    with open(path, "rb") as file:
        first = file.readline(MAX_LINE_BYTES)
        file.seek(max(0, os.path.getsize(path) - LAST_BYTES))
        *_, last = [b"", *file.read(LAST_BYTES).splitlines(keepends=True)]
        return first, last


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def duckdb_error() -> type[Exception]:
    """The base class of DuckDB's errors."""
    import duckdb

    return duckdb.Error
