"""What the threads that PyTorch divides an operation among on a CPU do while there is nothing for them to do."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SPINS = 10_000  # about 0.4 ms; by default they are 300,000
_SOFT = 1  # `omp_pause_soft`: threads end, and what OpenMP was told holds

FEW_THREADS = 4
"""So many are begun anew in less time than their spinning costs others."""


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
    be asked for once PyTorch is imported and knows its number of threads, and not to be taken into a forked process.

    MKL's products are then made by the caller alone, but within `products_by_all_threads`: MKL keeps a hundred
    bytes of every thread that has ever multiplied, ended or not, and 10 million steps of Atari end a million of them.
    """
    openmp, divide = ctypes.CDLL(None), _divide_products()
    if not hasattr(openmp, "omp_pause_resource_all") or openmp.omp_get_max_threads() > FEW_THREADS:
        return lambda: None

    def end() -> None:
        openmp.omp_pause_resource_all(_SOFT)
        divide(1)

    return end


@contextmanager
def products_by_all_threads() -> Iterator[None]:
    """Products of matrices by as many threads as PyTorch has, whatever has ended some before."""
    divide = _divide_products()
    before = divide(0)  # as many as the process has been told
    try:
        yield
    finally:
        divide(before)


def _divide_products() -> Callable[[int], int]:
    """What tells PyTorch's MKL among how many threads to divide the caller's products; gives back the number before."""
    torch = sys.modules.get("torch")
    library = ctypes.CDLL(torch._C.__file__) if torch else None  # symbols of what it depends on are found by it
    divide: Callable[[int], int] = getattr(library, "MKL_Set_Num_Threads_Local", lambda number: 0)
    return divide
