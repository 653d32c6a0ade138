"""How PyTorch takes memory from the system: in huge pages, and what has been freed is kept."""

from __future__ import annotations

import ctypes
import os

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # PyTorch's own name for it
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


def take_huge_pages() -> None:
    """Have PyTorch ask for pages of 2 MiB for tensors that are as large, unless the user has said otherwise.

    Only before its first tensor. The system gives them where `/sys/kernel/mm/transparent_hugepage/enabled` is
    `madvise` or `always`; elsewhere nothing changes.
    """
    os.environ.setdefault(HUGE_PAGES, "1")


def asks_for_huge_pages() -> bool:
    """Whether PyTorch does so in this process."""
    return os.environ.get(HUGE_PAGES) == "1"
