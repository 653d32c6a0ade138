"""Videos during a training: `evaluate ... video=true` of its checkpoints, in processes that cannot change or fail it.

Training waits for a video, so that the two do not share the processor and the checkpoint is not removed meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ppo_bench.common.errors import reason
from ppo_bench.common.progress import print_status

LONGEST_SECONDS = 600.0
"""Maximum time that training waits for a video, in seconds."""
POLL_SECONDS = 0.1
EVALUATE_OVERRIDES = ("video=true", "episodes=1", "greedy=false", "precision=float32", "device=cpu")
"""Overrides of the evaluation: sampled actions as in training, and on the CPU, as training may need all of a GPU."""


class VideoRecorder:
    """The videos of one run. A video that fails causes a warning and is the last one."""

    def __init__(self, every_episodes: int, episodes: int) -> None:
        """`episodes` is the number of training episodes at the latest video; `every_episodes=0` records nothing."""
        self._every, self._last, self._is_due = every_episodes, episodes, False

    def plan(self, episodes: int) -> int:
        """Decide whether a video is due at the checkpoint after `episodes`; the number of episodes at the latest one,
        which the checkpoint keeps."""
        self._is_due = 0 < self._every <= episodes - self._last
        self._last = episodes if self._is_due else self._last
        return self._last

    def record(self, checkpoint: Path, episodes: int, stop: Sequence[int]) -> float:
        """Record the policy of `checkpoint`, written after `episodes`, if a video is due; the seconds taken.

        Stops as soon as `stop` is not empty; the resumed run does not make up for the video.
        """
        if not self._is_due or stop:
            return 0.0
        started = time.perf_counter()
        command = [sys.executable, "-m", "ppo_bench.evaluate", str(checkpoint), *EVALUATE_OVERRIDES]
        try:
            why = _run(command, stop)
        except OSError as error:
            why = str(error)
        if why and not stop:
            self._every = 0
            print_status(f"warning: no video after {episodes} episodes, and none from now on: {why}")
        return time.perf_counter() - started


def _run(command: list[str], stop: Sequence[int]) -> str | None:
    """Why a command failed, in one line; None if it did not. It is killed as soon as `stop` is not empty."""
    ends = time.monotonic() + LONGEST_SECONDS
    process = subprocess.Popen(
        command,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # a terminal's interrupt reaches the training alone
    )
    with process:
        try:
            while not stop and time.monotonic() < ends:
                with suppress(subprocess.TimeoutExpired):
                    said = process.communicate(timeout=POLL_SECONDS)[1]
                    return reason(process.returncode, said.splitlines()) if process.returncode else None
            return f"it was given up after {LONGEST_SECONDS:.0f} seconds"
        finally:
            process.kill()
