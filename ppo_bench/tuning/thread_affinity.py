"""CPU affinity of worker threads: they follow their caller to its core.

A worker that sleeps while its caller runs, and whose caller sleeps while it runs, gains nothing from a core of its own.
It loses the time that waking an idle core takes; on a virtual machine that is more than a step of a small environment
(docs/performance.md).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


class FollowerThreads:
    """The worker threads that start inside `track_new_threads`. `pin_to_caller` moves them to the caller's core."""

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._core: int | None = None
        self._current_core: Callable[[], int] = ctypes.CDLL(None).sched_getcpu

    @contextmanager
    def track_new_threads(self) -> Iterator[None]:
        """A context; the threads that start inside it become the followers."""
        before = _threads()
        yield
        self._threads, self._core = _threads() - before, None

    def pin_to_caller(self) -> None:
        """Pin the followers to the core on which the caller runs now; does nothing if the caller has not moved."""
        core = self._current_core()
        if core != self._core:
            self._threads = {thread for thread in self._threads if _pin_thread(thread, core)}
            self._core = core


def _pin_thread(thread: int, core: int) -> bool:
    """Pin `thread` to `core`; False if that fails, mostly because the thread has ended."""
    try:
        os.sched_setaffinity(thread, {core})
    except OSError:  # harmless: a thread on another core is only slower
        return False
    return True
