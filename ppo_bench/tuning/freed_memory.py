"""Reuse of freed memory by PyTorch on a CPU (measured in docs/performance.md)."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = (1 << 30, 32 << 20)  # older versions of glibc refuse more than 32 MiB


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks of up to 1 GiB in this process, or 32 MiB; returns whether that succeeded.

    On a CPU PyTorch allocates every intermediate result by the C library, which by default returns large blocks to the
    operating system as soon as they are freed. The next allocation then has to map new pages.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return any(mallopt(_M_MMAP_THRESHOLD, size) for size in _KEPT_BYTES) and bool(mallopt(_M_TRIM_THRESHOLD, 1 << 30))
