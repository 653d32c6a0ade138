"""Interfaces that CleanRL's scripts were written for, on the packages that are installed."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from ppo_bench.commands.equivalence.cleanrl.script import Script


def install_writer(script: Script) -> None:
    """Put a module `torch.utils.tensorboard` in place."""

    class SummaryWriter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            script.used.add("writer")

        def add_text(self, *arguments: Any) -> None:
            pass

        def add_scalar(self, tag: str, *arguments: Any) -> None:
            if tag == "charts/learning_rate":
                script.end()

        def close(self) -> None:
            pass

    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    sys.modules["torch.utils.tensorboard"] = module


def install_float64(script: Script) -> None:
    """Make float64 the default of PyTorch, and what its names of float32 mean while the script calls them."""
    script.used.add("float64")
    torch.set_default_dtype(torch.float64)

    def widened(make: Any) -> Any:
        def made(*arguments: Any, dtype: Any = None, **options: Any) -> Any:
            if dtype is torch.float32 and script.variables:
                dtype = torch.float64
            return make(*arguments, dtype=dtype, **options)

        return made

    torch.tensor, torch.as_tensor, torch.zeros = (
        widened(make) for make in (torch.tensor, torch.as_tensor, torch.zeros)
    )
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    torch.FloatTensor = torch.DoubleTensor  # type: ignore[misc,assignment]
