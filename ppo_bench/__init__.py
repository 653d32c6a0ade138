"""One PPO and several ways of executing it.

`python -m ppo_bench.<command>` is ppo_bench/commands/<command>: that folder is on the package's search path. From
Python there are `train`, `load` and `results` (ppo_bench/commands/interface.py).
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
    """The Python interface, imported once it is asked for: commands are not to wait for it."""
    if name in ("Trained", "load", "results", "train"):
        return getattr(importlib.import_module("ppo_bench.commands.interface"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
