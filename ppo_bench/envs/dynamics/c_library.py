"""Functions of the C library for PyTorch's tensors, on a CPU; on a GPU they are PyTorch's own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def by_c_library(function: str, arguments: list[Tensor]) -> Tensor:
    """NumPy's `function` of `arguments`, tensors of one shape; PyTorch's function of the same name on a GPU."""
    if arguments[0].device.type != "cpu":
        on_device: Tensor = getattr(torch, function)(*arguments)
        return on_device
    if torch.compiler.is_compiling():
        compiled: Tensor = _operator(function, arguments)
        return compiled
    return _in_numpy(function, arguments)


def _in_numpy(function: str, arguments: list[Tensor]) -> Tensor:
    return torch.from_numpy(getattr(np, function)(*(x.numpy() for x in arguments)))


@torch.library.custom_op("ppo_bench::by_c_library", mutates_args=())
def _operator(function: str, arguments: list[Tensor]) -> Tensor:
    return _in_numpy(function, arguments)


@_operator.register_fake
def _(function: str, arguments: list[Tensor]) -> Tensor:
    return torch.empty_like(arguments[0])
