"""PPO in PyTorch and JAX: one algorithm and several ways of executing it.

`python -m ppo_bench.<command>` runs ppo_bench/commands/<command>: that folder is on the package's search path. The
Python interface is `train`, `load` and `results` (ppo_bench/commands/interface.py).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppo_bench.commands.interface import Trained as Trained
    from ppo_bench.commands.interface import load as load
    from ppo_bench.commands.interface import results as results
    from ppo_bench.commands.interface import train as train

__path__.append(str(Path(__file__).parent / "commands"))


def __getattr__(name: str) -> Any:
    """A name of the Python interface, imported on first access: commands start faster without it."""
    if name in ("Trained", "load", "results", "train"):
        return getattr(importlib.import_module("ppo_bench.commands.interface"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
