"""Processes of ppo_bench that a test starts, waits for and stops."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.training import ENVIRONMENT

TRAIN = [sys.executable, "-m", "ppo_bench"]
LONGEST_SECONDS = 600.0
"""Maximum time that a process is waited for, in seconds."""


@contextmanager
def started(*words: str, by: Sequence[str] = TRAIN, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The process of a training with `words`; it ends with the block at the latest.

    `by` is the command that takes the words. Unless `options`, which are Popen's, say otherwise, stderr is a pipe.
    """
    chosen: dict[str, Any] = {"env": ENVIRONMENT, "stderr": subprocess.PIPE} | options
    with subprocess.Popen([*by, *words], text=True, **chosen) as run:
        try:
            yield run
        finally:
            run.kill()


def wait_until(run: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    """Return once `condition` holds. Fails if `run` ends before, or if it takes too long."""
    deadline = time.monotonic() + LONGEST_SECONDS
    ended = False
    while not condition():
        assert not ended, f"it was over too soon: {run.stderr.read() if run.stderr else ''}"
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.005)
        ended = run.poll() is not None  # before the condition is looked at for the last time


def has_checkpoint(folder: Path) -> bool:
    """Whether a run has a checkpoint."""
    return any((folder / "checkpoints").glob("iteration_*"))


def count_rows(folder: Path) -> int:
    """Number of rows of metrics that a run has written so far."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@contextmanager
def small_disk(size: str, folder: Path) -> Iterator[Path]:
    """A file system in memory of a size, as `mount` reads it, at a new folder."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread may have ended meanwhile
            found += map(int, path.read_text().split())
    return found


def command_line(pid: int) -> str:
    """The command of a process, its words divided by zeros; empty once the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
