"""What the threads that PyTorch divides an operation among on a CPU do while there is nothing for them to do."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SPINS = 10_000  # about 0.4 ms; by default they are 300,000
_FEW = 4  # threads, which are begun anew in less time than their spinning costs others
_SOFT = 1  # `omp_pause_soft`: threads end, and what OpenMP was told holds


def let_idle_threads_sleep() -> None:
    """Have threads of OpenMP wait busily for less than a millisecond, not for ten, unless the user has said otherwise.

    Only before PyTorch is imported. Its threads would otherwise spin through every step of the environments, on cores
    that those step on.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))


def idle_threads_ender() -> Callable[[], object]:
    """What ends the threads that OpenMP keeps for the caller's next operation, which begins new ones.

    Even a short spin lasts longer than what lies between a policy's last operation and a step of environments that
    have use for the core. By `omp_pause_resource_all` of OpenMP 5.0; nothing where there is none, or many threads. To
    be asked for once PyTorch is imported and knows its number of threads.
    """
    openmp = _of_few_threads()
    return functools.partial(openmp.omp_pause_resource_all, _SOFT) if openmp else lambda: None


@contextmanager
def products_by_one_thread(library: str) -> Iterator[None]:
    """Products of matrices of the caller by itself, where threads would be ended: `library` is that of PyTorch.

    MKL keeps a hundred bytes of every thread that has ever multiplied, ended or not; 10 million steps of Atari would
    end a million of them.
    """
    divide: Callable[[int], int] | None = getattr(ctypes.CDLL(library), "MKL_Set_Num_Threads_Local", None)
    if divide is None or not _of_few_threads():
        yield
        return
    before = divide(1)
    try:
        yield
    finally:
        divide(before)


def _of_few_threads() -> Any:
    """This process's OpenMP; None if it has none, no way to end threads, or too many for that."""
    openmp = ctypes.CDLL(None)
    there = hasattr(openmp, "omp_pause_resource_all")
    return openmp if there and openmp.omp_get_max_threads() <= _FEW else None
