"""Gymnasium wrappers that make an environment slow or deadly."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium

STEP_SECONDS = 0.005


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A step takes at least `STEP_SECONDS`."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS)
        return self.env.step(action)


class NoMoreThanTwo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A third environment kills the process in which it is made; the first may be made for its spaces alone."""

    made = 0

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        NoMoreThanTwo.made += 1
        if NoMoreThanTwo.made > 2:
            os.kill(os.getpid(), signal.SIGKILL)
