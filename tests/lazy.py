"""A module that raises when it is asked for a name, or when it is imported while `INTERRUPTED` is set."""

from __future__ import annotations

import os
from typing import Any

if os.environ.get("INTERRUPTED"):
    raise KeyboardInterrupt


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(f"tests.lazy knows no {name}")
