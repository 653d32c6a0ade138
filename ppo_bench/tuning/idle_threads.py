"""What the threads that PyTorch divides an operation among on a CPU do while there is nothing for them to do."""

from __future__ import annotations

import os

_SPINS = 10_000  # about 0.4 ms; by default they are 300,000


def let_idle_threads_sleep() -> None:
    """Have threads of OpenMP wait busily for less than a millisecond, not for ten, unless the user has said otherwise.

    Only before PyTorch is imported. Its threads would otherwise spin through every step of the environments, on cores
    that those step on.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
