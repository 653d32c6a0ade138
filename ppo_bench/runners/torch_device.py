"""Selection of PyTorch's device, threads and precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.precision import NO_TF32, Precision
from ppo_bench.mathematics.shards import SINGLE_SHARD, Shard
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.tuning.machine import has_nvidia_gpu

WIDE_LAYER = 2**17
"""Minimum number of weights of a layer for which several threads pay off: 512 x 512 does, 256 x 256 does not
(docs/performance.md)."""
DEFAULT_THREADS = torch.get_num_threads()
"""PyTorch's own number of threads, to which a run returns after one that has set another in this process."""


def pick_device(device: str, precision: Precision, local_shard: Shard = SINGLE_SHARD) -> torch.device:
    """The device named `device`: auto, cpu, cuda or cuda:<i>; `local_shard` is this process among those of its machine,
    which have a GPU each.

    Raises `ConfigError` if it does not exist or does not support `precision`.
    """
    if device == "auto":
        if has_nvidia_gpu() and not torch.cuda.is_available():
            raise ConfigError(
                "device=auto: this machine has an NVIDIA GPU and PyTorch sees none: install a CUDA build of torch, "
                "or use device=cpu"
            )
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and local_shard.count > 1:
        if local_shard.count > torch.cuda.device_count():
            raise ConfigError(
                f"{local_shard.count} devices on this machine: PyTorch sees {torch.cuda.device_count()} GPUs; use fewer"
            )
        device = f"cuda:{local_shard.index}"
    picked = torch.device(device)
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={device}: PyTorch sees {torch.cuda.device_count()} CUDA devices; use device=cpu")
    if precision.tf32 and not (picked.type == "cuda" and torch.cuda.get_device_capability(picked) >= (8, 0)):
        raise ConfigError(NO_TF32)
    return picked


def threads_for(parameters: Iterable[Parameter], num_threads: int | None, most: int = DEFAULT_THREADS) -> int:
    """Number of PyTorch's threads for layers with these parameters, trained and frozen ones.

    `num_threads=None` means one thread if all layers are linear and narrow, else `most`.
    """
    shapes = [parameter.shape for parameter in parameters]
    narrow = all(len(shape) < 4 and math.prod(shape) < WIDE_LAYER for shape in shapes)  # convolutions have four axes
    return num_threads or (1 if narrow else most)


def set_threads(count: int) -> int:
    """Set the number of PyTorch's threads in this process; returns the number before."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    return before


@contextmanager
def own_settings(precision: Precision, threads: int) -> Iterator[None]:
    """A context with these precision flags and number of threads, after which this process's own are back."""
    matmul = torch.backends.cuda.matmul
    flags = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    reduction, threads_before = matmul.allow_bf16_reduced_precision_reduction, set_threads(threads)
    set_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(flags[0])
        torch.backends.cudnn.allow_tf32 = flags[1]
        matmul.allow_bf16_reduced_precision_reduction = reduction
        set_threads(threads_before)


def use_deterministic_algorithms() -> None:
    """Make results on a GPU reproducible bit by bit; PyTorch warns of operations without a deterministic version."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # it is never read here
    torch.backends.cudnn.benchmark = False


def set_precision(precision: Precision) -> dict[str, object]:
    """Set PyTorch's precision flags, and return the settings to be recorded with the run."""
    torch.set_float32_matmul_precision("high" if precision.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = precision.tf32  # on by default, unlike TF32 for matrix products
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    flags = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
    }
    return precision._asdict() | flags
