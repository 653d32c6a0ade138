"""A part of this machine's cores for one of several processes, by affinity: threads of PyTorch, XLA and EnvPool that
are started meanwhile keep to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def available_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def num_available_cores() -> int:
    """Number of cores that this process may use."""
    return len(available_cores())


@contextmanager
def cpu_affinity(cores: list[int]) -> Iterator[None]:
    """Keep the calling thread, and the threads and processes that it starts meanwhile, to `cores`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def shard_of_cores(index: int, count: int) -> list[int]:
    """The cores of one of `count` processes that divide those of this one; all of them where there are fewer."""
    cores = available_cores()
    size = len(cores) // count
    return cores[index * size : (index + 1) * size] if size else cores
