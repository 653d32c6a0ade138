"""What a run leaves behind: one folder of plain files, complete exactly when `result.json` exists.

run.json        configuration, versions, hardware: written once, when the run starts
metrics.jsonl   a row an iteration
episodes.jsonl  a row a finished episode, at most 1,000 an iteration (metrics.jsonl counts and averages all)
checkpoints/    see ppo_bench/runs/checkpoint.py
result.json     the summary, written aside and renamed last
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ppo_bench.common.errors import ConfigError

SCHEMA_VERSION = 1
EPISODE_ROWS_PER_ITERATION = 1_000
COMPILING_ITERATIONS = 3
LOCK_TRIES = 3
"""`in_use` has the lock for a moment."""


def choose_folder(folder: Path, rerun: bool) -> Path:
    """`folder`, or with `rerun` the first of `<folder>-rerun<n>`, n = 2, 3, ..., that is not complete.

    Whether or not there is a `folder`, so that the same command goes on with the rerun that it has begun.
    """
    if not rerun:
        return folder
    n = 2
    while ((beside := folder.with_name(f"{folder.name}-rerun{n}")) / "result.json").exists():
        n += 1
    return beside


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Make the run's folder and keep other processes out. Raises `ConfigError` if it cannot be written or is in use."""
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another folder by outputs=") from error
    try:
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"cannot write to {folder}; choose another folder by outputs=")
        # The system frees the lock however this process ends.
        for _ in range(LOCK_TRIES):
            try:
                took = _lock(descriptor, fcntl.LOCK_EX)
            except OSError as error:  # such as Lustre's, mounted without flock
                raise ConfigError(
                    f"cannot lock {folder}: {error.strerror} on its file system; choose another folder by outputs="
                ) from error
            if took:
                break
            time.sleep(0.1)
        if not took:
            raise ConfigError(f"{folder} is being trained by another process: wait for it, or stop it")
        yield
    finally:
        os.close(descriptor)


def are_complete(folders: Sequence[Path]) -> bool:
    """Whether the runs in all of `folders` have been trained to their ends."""
    return all((folder / "result.json").exists() for folder in folders)


def in_use(folder: Path) -> bool:
    """Whether a process is training in `folder`."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    except OSError:  # where there are no locks, no training is
        return False
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def plain(value: Any) -> Any:
    """`value` with null in place of numbers that do not exist (NaN and infinities), as JSON wants it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value


def _line(row: Mapping[str, Any]) -> str:
    try:  # nearly every row is plain, and to make sure takes as long as to write it
        return json.dumps(row, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(plain(row), allow_nan=False) + "\n"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file so that it is there whole or not at all, even if the machine stops."""
    aside = path.with_name(f".{path.name}.tmp")
    write_safely(aside, (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode())
    aside.replace(path)
    sync_folder(path.parent)


def write_safely(path: Path, data: bytes) -> None:
    """Write a file and see it on disk. Raises `OSError`, which names it, if that fails."""
    with naming(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system name `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_json(path: Path, remedy: str = "rerun=true starts the run afresh beside it") -> dict[str, Any]:
    """Read a JSON file that `write_json` wrote. Raises `ConfigError`, which names the remedy, if it is damaged."""
    try:
        value = json.loads(path.read_text())
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from error


def sync_folder(folder: Path) -> None:
    """Make renames within `folder` survive a stop of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def speeds(metrics: Path, iterations_per_call: int) -> tuple[float, float]:
    """Steady speed and start-up time of a run, from its rows of metrics.

    The first is the environment steps per second of the median iteration, or of the median block of iterations that the
    device is given at once: their rows come in bursts. The second is how many seconds the first three iterations took
    beyond as many median ones: compilation, where a framework compiles.
    """
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = rows[0]["global_step"] / rows[0]["iteration"]  # of one iteration
    seconds = [steps / row["sps"] for row in rows]
    blocks = [seconds[k : k + iterations_per_call] for k in range(0, len(seconds), iterations_per_call)]
    steady = median(steps * len(block) / sum(block) for block in blocks)
    return steady, sum(max(0.0, each - steps / steady) for each in seconds[:COMPILING_ITERATIONS])
