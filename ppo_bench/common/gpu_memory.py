"""JAX's allocation of GPU memory."""

from __future__ import annotations

import os


def share_gpu_memory() -> None:
    """Make JAX allocate GPU memory on demand, instead of most of it at the start, so that other processes can share it.

    It must be called before JAX initialises its devices.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
