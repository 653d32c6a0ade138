"""Atomic and durable writing of files, reading and writing of JSON, and locks."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError

SCHEMA_VERSION = 1
"""Version of the format of every JSON file that a command writes."""


def is_complete(run_folder: Path) -> bool:
    """Whether the run in `run_folder` is complete: it then has its result, and only then.

    Raises `ConfigError` if this process cannot look there.
    """
    try:
        return (run_folder / "result.json").exists()
    except OSError as error:  # such as a name that is too long, or a folder that is closed to this user
        raise ConfigError(f"cannot read {run_folder}: {error.strerror}; choose another folder by outputs=") from error


def are_complete(folders: Sequence[Path]) -> bool:
    """Whether the runs in all of `folders` are complete."""
    return all(map(is_complete, folders))


def first_unfinished(folders: Sequence[Path]) -> Path:
    """The first of the `folders` whose run is not complete; the first of all if there is none."""
    return next((folder for folder in folders if not is_complete(folder)), folders[0])


def jsonable(value: Any) -> Any:
    """`value` with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: jsonable(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(child) for child in value]
    return value


def remove_unstarted(run_folder: Path, levels: int) -> None:
    """Remove what Hydra has written for a run that has not started, and then `levels` folders as far as they are empty:
    that of the run and those above it."""
    if (run_folder / "run.json").exists():
        return
    shutil.rmtree(run_folder / ".hydra", ignore_errors=True)
    with suppress(OSError):
        for folder in (run_folder, *run_folder.parents)[:levels]:
            folder.rmdir()


def resolve_folders(folders: Sequence[Path], rerun: bool) -> list[Path]:
    """`folders`, or with `rerun` the first `<folder>-rerun<n>`, n = 2, 3, ..., that are not all complete.

    The result does not depend on whether `folders` exist, so that the same command resumes the rerun that it started.
    """
    n, chosen = 2, list(folders)
    while rerun and are_complete(chosen := [folder.with_name(f"{folder.name}-rerun{n}") for folder in folders]):
        n += 1
    return chosen


def make_folder(folder: Path, remedy: str = "choose another folder by outputs=") -> None:
    """Make a folder, and those above it. Raises `ConfigError` with the `remedy` if this process cannot write to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; {remedy}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write to {folder}; {remedy}")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically: after a crash, of the machine too, it is either complete or not there."""
    aside = path.with_name(f".{path.name}.tmp")
    write_safely(aside, (json.dumps(jsonable(value), indent=2, allow_nan=False) + "\n").encode())
    aside.replace(path)
    sync_folder(path.parent)


def write_safely(path: Path, data: bytes) -> None:
    """Write a file and flush it to disk. Raises `OSError` with the file's name."""
    with name_in_errors(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """A context in which every `OSError` names `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_json(path: Path, remedy: str = "rerun=true trains again in a new folder") -> dict[str, Any]:
    """The content of a file that `write_json` wrote. Raises `ConfigError` with the `remedy` if it is damaged."""
    try:
        value = json.loads(path.read_text())
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from error


def sync_folder(folder: Path) -> None:
    """Flush the entries of `folder` to disk, so that renames in it survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock the open file `descriptor` by `flock` until it is closed; returns whether that succeeded.

    The operating system releases it when the process ends. A watcher takes a shared one, and so is not mistaken for a
    training; packages for locks have exclusive ones only. `wait` waits until the lock is free. Raises `OSError` on file
    systems without locks, such as Lustre without flock.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
