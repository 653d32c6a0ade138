"""Threads that keep to the core of the thread they work for.

A thread that sleeps until it is asked, and whose caller sleeps until it has answered, gains nothing from a core of its
own, and loses what it takes to wake a core that idles: more than a step of a small environment on a virtual machine.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


class Followers:
    """The threads that were started within `starting`; `gather` brings them to the caller's core."""

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._core: int | None = None
        self._current_core: Callable[[], int] = ctypes.CDLL(None).sched_getcpu

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Take the threads that are started here for the followers."""
        before = _threads()
        yield
        self._threads, self._core = _threads() - before, None

    def gather(self) -> None:
        """Have them run where the caller runs now; it stays free to move, and so does nothing where it has not."""
        core = self._current_core()
        if core != self._core:
            self._threads = {thread for thread in self._threads if _moved(thread, core)}
            self._core = core


def _moved(thread: int, core: int) -> bool:
    """Move `thread` to `core`; False if it no longer runs, as those that only helped to start others."""
    try:
        os.sched_setaffinity(thread, {core})
    except OSError:  # or it may not be moved, which costs time and nothing else
        return False
    return True
