"""What the system says of this machine, by `/proc` and `/dev`."""

from __future__ import annotations

import os
import re
from pathlib import Path

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


def cpu_model() -> str | None:
    """The name of the first CPU; None where the system does not tell."""
    return _value(Path("/proc/cpuinfo"), "model name")


def gpu_model() -> str | None:
    """The name of the first NVIDIA GPU, as its driver tells without any framework; None without one."""
    files = sorted(NVIDIA_GPUS.glob("*/information"))
    return _value(files[0], "Model") if files else None


def has_nvidia_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU that is not hidden from this process, seen by a framework or not."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1", "NoDevFiles"):
        return False
    return any(NVIDIA_GPUS.glob("*")) or any(Path("/dev").glob("nvidia[0-9]*"))  # a sandbox may have the second alone


def is_alive(process: int) -> bool:
    """Whether a process of this id runs; one that has ended and is not yet waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return re.search(r"\) [ZX]", state) is None


def _value(path: Path, key: str) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)
