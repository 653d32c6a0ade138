"""A run's folder of plain files; the run is complete exactly when `result.json` exists.

run.json        configuration, versions, hardware: written once, when the run starts
metrics.jsonl   one row per iteration
episodes.jsonl  one row per finished episode, the last 1,000 of an iteration (metrics.jsonl counts and averages all)
checkpoints/    see ppo_bench/runners/checkpoint.py
result.json     the summary, written to a temporary file and renamed last
error.txt       why the last training of an unfinished run failed, unless it was killed or refused
.lock           empty; its lock is held by the process that trains
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ppo_bench.common.errors import ConfigError, FailedRuns, RunError, RunInterrupted, one_line
from ppo_bench.common.files import is_complete, lock, make_folder, read_json
from ppo_bench.common.rows import last_rows, read_rows

RUN_FILES = ("run.json", "result.json", "metrics.jsonl", "episodes.jsonl")
"""Files of a run; a folder with any of them is a run folder."""
EVALUATION_COLUMNS = ("evaluation_return_greedy", "evaluation_return_sampled")
"""Columns of metrics.jsonl if `evaluation.every_iterations` is above 0: mean returns of whole episodes."""
EPISODE_ROWS_PER_ITERATION = 1_000
"""Maximum number of rows of episodes that an iteration adds: the last ones, as the mean of the last 100 needs."""
RECENT_EPISODES = 100
"""Number of episodes whose mean return a run's summary gives, the last of the training."""
COMPILING_ITERATIONS = 3
"""Iterations at the start of a training in which programs may be compiled."""
ERROR_FILE = "error.txt"
LOCK_FILE = ".lock"
"""The file in a run's folder that its training holds a lock of."""
LOCK_TRIES = 3
"""Attempts to lock the folder: `is_in_use` of another process may hold the lock for a moment."""


@contextmanager
def lock_run_folder(folder: Path, position: int = 0) -> Iterator[None]:
    """Create the run's folder and lock it for this process. Raises `ConfigError` if it is read-only or in use.

    `position` is that of the run among those that a program trains; the failure of another is not kept in this folder.
    What is locked is a file in it, since NFS keeps locks of folders to each machine.
    """
    new = not (folder / "checkpoints").exists()
    make_folder(folder)
    make_folder(folder / "checkpoints")
    descriptor = _open_locked(folder)
    try:
        with _error_file(folder / ERROR_FILE, position):
            try:
                yield
            except ConfigError:
                if new:
                    with suppress(OSError):
                        (folder / "checkpoints").rmdir()
                        (folder / LOCK_FILE).unlink()
                raise
    finally:
        os.close(descriptor)


def _open_locked(folder: Path) -> int:
    """The descriptor of the folder's lock file, which it locks until it is closed. Raises `ConfigError`."""
    path = folder / LOCK_FILE
    for _ in range(LOCK_TRIES):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # less what the umask takes
        except OSError as error:
            message = f"cannot write to {folder}: {error.strerror}; choose another folder by outputs="
            raise ConfigError(message) from error
        try:
            # The operating system frees the lock however this process ends. A refused run removes its lock file.
            if lock(descriptor) and _is_at(descriptor, path):
                return descriptor
        except OSError as error:  # for example on Lustre mounted without flock
            os.close(descriptor)
            message = f"cannot lock {folder}: {error.strerror} on its file system; choose another folder by outputs="
            raise ConfigError(message) from error
        os.close(descriptor)
        time.sleep(0.1)
    raise ConfigError(f"{folder} is being trained by another process: wait for it, or stop it")


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is that at `path`, and has not been removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _error_file(path: Path, position: int) -> Iterator[None]:
    """Writes the error that leaves the context to a file that it removes first.

    Not written for a requested stop, a `ConfigError` or the failure of other runs.
    """
    path.unlink(missing_ok=True)
    try:
        yield
    except (RunInterrupted, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
        if isinstance(error, FailedRuns):
            said = error.reasons.get(position, "")
        with suppress(OSError):  # such as a full disk, of which the error itself speaks
            if said:
                path.write_text(one_line(said) + "\n", encoding="utf-8")
        raise


def error_of(folder: Path) -> str | None:
    """Why the last training of an unfinished run failed; None if it has not, or was killed."""
    try:
        return one_line((folder / ERROR_FILE).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def read_run_json(folder: Path) -> dict[str, Any]:
    """The run.json of a run. Raises `ConfigError` if it is missing, damaged or something else."""
    about = read_json(folder / "run.json")
    if not all(isinstance(about.get(part), dict) for part in ("config", "versions", "hardware", "execution")):
        raise ConfigError(f"{folder / 'run.json'} is not the record of a run; rerun=true trains again in a new folder")
    return about


def run_folders(folder: Path, signs: Sequence[str] = RUN_FILES) -> Iterator[Path]:
    """The run folders in or below `folder`, which hold any of `signs`. Hidden folders are not searched."""
    for path, folders, files in os.walk(folder):
        if any(name in signs for name in (*files, *folders)):
            folders.clear()  # a run folder has no run folders below it
            yield Path(path)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def is_in_use(folder: Path) -> bool:
    """Whether a process is training in `folder`."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock(descriptor, shared=True)
    except OSError:  # without locks on the file system no training can have started
        return False
    finally:
        os.close(descriptor)


class Progress(NamedTuple):
    """How far a run has come."""

    step: int
    total: int
    sps: float | None
    """Environment steps per second: of the last iteration, or of the whole training if the run is complete."""


def progress_of(folder: Path) -> Progress:
    """The progress of the run in `folder`, from its files. Raises `ConfigError` if one is missing or damaged."""
    if is_complete(folder):
        result = read_json(folder / "result.json")
        steps = int(result["global_step"])
        return Progress(steps, steps, number_or_none(result["mean_sps"]))
    config = read_json(folder / "run.json")["config"]
    batch = config["ppo"]["num_envs"] * config["ppo"]["num_steps"]
    last: dict[str, Any] = next(iter(last_rows(folder / "metrics.jsonl", 1)), {})
    total = config["total_timesteps"] // batch * batch
    return Progress(int(last.get("global_step", 0)), total, number_or_none(last.get("sps")))


def number_or_none(value: Any) -> float | None:
    """A number of a file, where null is None."""
    return None if value is None else float(value)


def mean(values: Sequence[float]) -> float | None:
    """The mean of `values`; None if there are none."""
    return math.fsum(values) / len(values) if values else None


def recent_return(folder: Path) -> float | None:
    """Mean return of the last 100 episodes of the run in `folder` so far; None if none has ended."""
    return mean([row["return"] for row in last_rows(folder / "episodes.jsonl", RECENT_EPISODES)])


def speeds(metrics: Path, resumed_at: Sequence[int] = ()) -> tuple[float, list[float]]:
    """Steady speed of a run, and its start-up times: at first and after each row of `resumed_at`; from `metrics`.

    The steady speed is that of the median iteration, in environment steps per second. A start-up time is in seconds:
    how much longer the first three iterations after the start took than median ones. It is compilation where a
    framework compiles.
    """
    rows = read_rows(metrics)
    steps = rows[0]["global_step"] / rows[0]["iteration"]  # of one iteration
    seconds = [steps / row["sps"] for row in rows]
    steady = median(row["sps"] for row in rows)
    longer = [max(0.0, each - steps / steady) for each in seconds]
    starts = pairwise((0, *resumed_at, len(longer)))
    return steady, [sum(longer[start : min(start + COMPILING_ITERATIONS, end)]) for start, end in starts]


def final_return(folders: Sequence[Path]) -> float | None:
    """Mean of `final_return_mean` over complete runs; None if one has none. Raises `ConfigError` if one is damaged."""
    found = [read_json(folder / "result.json").get("final_return_mean") for folder in folders]
    return mean([value for value in found if value is not None]) if None not in found else None
