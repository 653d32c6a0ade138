"""Frames of a video, and an environment wrapper that fails while a video of the environment is rendered."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

FRAMES = 5
"""That are drawn before the trouble."""


def frames_of(path: Path) -> np.ndarray:
    """All frames of a video, `[T, H, W, 3]` uint8."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


class Troubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises, hangs, or is killed when it is drawn once more than `FRAMES` times."""

    def __init__(self, env: gymnasium.Env[Any, Any], trouble: str) -> None:
        super().__init__(env)
        self._trouble, self._drawn = trouble, 0

    def render(self) -> Any:
        self._drawn += 1
        if self._drawn > FRAMES:
            if self._trouble == "raise":
                raise RuntimeError("out of paint")
            if self._trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        return super().render()
