"""Locks of open files by `flock`; the operating system releases them when their process ends.

Packages for file locks offer exclusive locks only. A watcher needs shared ones: it must test the lock of a run
without being mistaken for a training, also where it may not write.
"""

from __future__ import annotations

import fcntl


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock the open file `descriptor` until it is closed; returns whether that succeeded.

    With `wait`, it waits until the lock is free, and succeeds. Raises `OSError` on file systems without locks, such as
    Lustre without flock.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
