"""Gymnasium wrappers that make an environment slow or deadly."""

from __future__ import annotations

import time
from typing import Any

import gymnasium

STEP_SECONDS = 0.005


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A step takes at least `STEP_SECONDS`."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS)
        return self.env.step(action)
