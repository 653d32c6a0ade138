"""Locks of open files and folders, which the system frees however their holder ends.

By `flock` and not by a package: those lock exclusively, and a watcher must be able to look at a folder that it may not
write without being taken for a training.
"""

from __future__ import annotations

import fcntl


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Whether the lock of what is open as `descriptor` is held now; it is until that is closed.

    With `wait` it always is in the end. Raises `OSError` on file systems without locks, such as Lustre without flock.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
