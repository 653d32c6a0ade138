"""JSON-lines files: appended to, cut back on resuming, read whole, from their ends, and while they are written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import jsonable, naming

TAIL_BYTES = 16_384


class Mark(NamedTuple):
    """How far a file of rows had come, and what it held up to there."""

    length_bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()


NO_ROWS = Mark()


def check_rows(path: Path, mark: Mark) -> None:
    """Raise `ConfigError` if the rows that the mark counts are not in the file as they were written."""
    kept = _start_of(path, mark)
    if hashlib.sha256(kept).hexdigest() != mark.sha256:
        lacks = "lacks rows" if len(kept) < mark.length_bytes else "is damaged: it holds other rows than those"
        raise ConfigError(f"{path} {lacks} that its checkpoint counts; rerun=true starts the run afresh beside it")


def _start_of(path: Path, mark: Mark) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(mark.length_bytes)
    except FileNotFoundError:
        return b""


class Rows:
    """A JSON-lines file that is appended to, and cut back to a checkpoint's mark, see `check_rows`, on resuming."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self._path = path
        self._digest = hashlib.sha256(_start_of(path, mark))
        path.touch()
        os.truncate(path, mark.length_bytes)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the run lasts)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows and hand them to the operating system."""
        data = "".join(_line(row) for row in rows).encode()
        with naming(self._path):
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._digest.update(data)

    def mark(self) -> Mark:
        """The end of the rows so far, all of them safe on disk."""
        with naming(self._path):
            os.fsync(self._file.fileno())
        return Mark(self._file.tell(), self._digest.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(row: Mapping[str, Any]) -> str:
    try:  # nearly every row is plain, and to make sure takes as long as to write it
        return json.dumps(row, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(jsonable(row), allow_nan=False) + "\n"


def read_rows(path: Path) -> list[Any]:
    """The whole rows of a file to which processes may still write; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def last_rows(path: Path) -> list[dict[str, Any]]:
    """The last whole rows of a file, as many as `TAIL_BYTES` hold. Raises `ConfigError` if they are damaged."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(start)
        lines = file.read().split(b"\n")[1 if start else 0 : -1]  # the first may be cut, the last is not whole
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error})") from error


class NewRows:
    """The rows that a process adds to a file, as they come."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (open as long as the run lasts)
        self._rest = b""

    def new(self) -> list[dict[str, Any]]:
        """What has been added since the last call, in whole rows."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [json.loads(line) for line in lines]
