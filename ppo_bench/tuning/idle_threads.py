"""Idle behaviour of the OpenMP threads among which PyTorch divides its operations on a CPU."""

from __future__ import annotations

import os

_SPINS = 10_000  # iterations of the busy wait, about 0.4 ms; the default is 300,000


def let_idle_threads_sleep() -> None:
    """Make idle OpenMP threads sleep after less than a millisecond of busy waiting, instead of ten.

    It must be called before PyTorch is imported, and keeps settings of the user (`OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`).
    By default the threads would wait busily during every environment step, on cores that the environments need.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
