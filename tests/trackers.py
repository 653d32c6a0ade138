"""A tracker that fails at a chosen moment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Troubled:
    """Raises, exits or hangs when it is opened, logged to or finished; leaves a file `moment` in the run's folder."""

    moment: str
    trouble: str = "raise"

    def open(self, folder: Path, run: Mapping[str, Any]) -> Opened:
        assert run["config"]["tracker"]["troubled"]["moment"] == self.moment
        opened = Opened(self, folder)
        opened.meet("open")
        return opened


@dataclass
class Opened:
    """The open tracker."""

    by: Troubled
    folder: Path

    def log(self, values: Mapping[str, float], global_step: int, wall_time: float) -> None:
        self.meet("log")

    def log_video(self, path: Path, global_step: int) -> None:
        self.meet("log_video")

    def finish(self, result: Mapping[str, Any] | None) -> None:
        assert (self.folder / "result.json").exists() == (result is not None)
        self.meet("finish")

    def meet(self, moment: str) -> None:
        (self.folder / moment).touch()
        if moment != self.by.moment:
            return
        if self.by.trouble == "exit":
            raise SystemExit(3)
        if self.by.trouble == "raise":
            raise RuntimeError(f"trouble in {moment}")
        time.sleep(600)
