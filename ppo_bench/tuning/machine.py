"""Facts about this machine and its processes."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


def cpu_model() -> str | None:
    """Model name of the first CPU; None if `/proc/cpuinfo` does not have it."""
    return _value(Path("/proc/cpuinfo"), "model name")


def gpu_model() -> str | None:
    """Model name of the first NVIDIA GPU according to its driver, without a framework; None without a GPU."""
    files = sorted(NVIDIA_GPUS.glob("*/information"))
    return _value(files[0], "Model") if files else None


def has_nvidia_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU that `CUDA_VISIBLE_DEVICES` does not hide, even if no framework sees it."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1", "NoDevFiles"):
        return False
    return any(NVIDIA_GPUS.glob("*")) or any(Path("/dev").glob("nvidia[0-9]*"))  # a container may have only the latter


def memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_memory_bytes() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _value(path: Path, key: str) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def cxx_compiler() -> str:
    """The C++ compiler that `torch.compile` calls."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def share_gpu_memory() -> None:
    """Make JAX allocate GPU memory on demand, instead of most of it at the start, so that other processes can share it.

    It must be called before JAX initialises its devices.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
