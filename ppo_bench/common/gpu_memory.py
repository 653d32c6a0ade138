"""Whether JAX takes a GPU for itself."""

from __future__ import annotations

import os


def share_gpu_memory() -> None:
    """Have JAX take a GPU's memory as it needs it, not most of it at once: other processes may be there too.

    Only before JAX first computes something.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
