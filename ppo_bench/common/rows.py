"""JSON-lines files: appending rows, truncating to a checkpoint, and reading all or the last rows."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import name_in_errors

TAIL_BYTES = 65_536
"""Number of bytes at the end of a file that `last_rows` reads first."""


class FilePosition(NamedTuple):
    """A position in a JSON-lines file: its length at that time, and the digest of the content up to there."""

    length_bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()


NO_ROWS = FilePosition()


def check_rows(path: Path, mark: FilePosition) -> None:
    """Raise `ConfigError` unless the file still begins with the content that `mark` describes."""
    beginning = _read_until(path, mark)
    if hashlib.sha256(beginning).hexdigest() != mark.sha256:
        problem = (
            "has fewer rows than" if len(beginning) < mark.length_bytes else "is damaged: its rows differ from what"
        )
        raise ConfigError(f"{path} {problem} its checkpoint recorded; rerun=true trains again in a new folder")


def _read_until(path: Path, mark: FilePosition) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(mark.length_bytes)
    except FileNotFoundError:
        return b""
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a folder; rerun=true trains again in a new folder") from error


class Rows:
    """A JSON-lines file to append to. It is first truncated to `mark`, that of a checkpoint if a run is resumed.

    NaN and infinities, which JSON does not have, become null; NumPy's numbers become floats.
    """

    def __init__(self, path: Path, mark: FilePosition) -> None:
        self._path = path
        self._digest = hashlib.sha256(_read_until(path, mark))
        path.touch()
        os.truncate(path, mark.length_bytes)
        self._waiting: list[bytes] = []
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the run lasts)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, which wait in memory for `write`."""
        option = orjson.OPT_APPEND_NEWLINE
        self._waiting += (orjson.dumps(row, default=float, option=option) for row in rows)

    def write(self) -> None:
        """Append the rows that wait, and pass them to the operating system."""
        data, self._waiting = b"".join(self._waiting), []
        with name_in_errors(self._path):
            if data and self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._digest.update(data)

    def mark(self) -> FilePosition:
        """Flush all rows to disk, and return the position after the last one."""
        self.write()
        with name_in_errors(self._path):
            os.fsync(self._file.fileno())
        return FilePosition(self._file.tell(), self._digest.hexdigest())

    def close(self) -> None:
        """Write the rows that wait, and close the file."""
        self.write()
        self._file.close()


def read_rows(path: Path) -> list[Any]:
    """The complete rows of a file to which other processes may be appending; an empty list if the file is missing.

    Raises `ConfigError` if they are damaged.
    """
    return _rows(path, path.read_bytes().split(b"\n")[:-1]) if path.exists() else []


def last_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """The last `count` complete rows of a file, or all if there are fewer. Raises `ConfigError` if they are damaged."""
    if not path.exists():
        return []
    lines: list[bytes] = []
    with open(path, "rb") as file:
        start = size = file.seek(0, os.SEEK_END)
        length = TAIL_BYTES
        while start and len(lines) < count:
            start, length = max(0, size - length), 2 * length
            file.seek(start)
            # The first and the last line may be incomplete.
            lines = file.read(size - start).split(b"\n")[1 if start else 0 : -1]
    return _rows(path, lines[-count:])


def _rows(path: Path, lines: Sequence[bytes]) -> list[Any]:
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error})") from error
