"""Freed memory that PyTorch keeps on a CPU: 1.06 [1.00, 1.22] and 1.06 [1.02, 1.12] times as fast on Breakout."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Have glibc keep freed blocks of up to 1 GiB for this whole process; whether it could be told to.

    On a CPU PyTorch takes the memory of every intermediate result from the system's allocator, which hands large blocks
    back as soon as they are free. An iteration of Breakout then touches 290,000 new pages, a fifth of its CPU time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
