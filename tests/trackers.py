"""A tracker that fails at a chosen moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Troubled:
    """Raises, hangs, or is killed when it is opened, written to or closed."""

    moment: str
    trouble: str

    def require(self) -> None:
        pass

    def open(self, folder: Path, run: dict[str, Any]) -> Troubled:
        assert run["config"]["tracker"]["troubled"]["moment"] == self.moment
        self._meet("open")
        return self

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        self._meet("write")

    def show(self, video: Path, global_step: int) -> None:
        pass

    def conclude(self, result: dict[str, Any] | None) -> None:
        pass

    def close(self) -> None:
        self._meet("close")

    def _meet(self, moment: str) -> None:
        if moment != self.moment:
            return
        print("chatter", flush=True)
        if self.trouble == "raise":
            raise RuntimeError(f"trouble in {moment}")
        if self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
