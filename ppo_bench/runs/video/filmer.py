"""Videos during a training, recorded by processes that read its checkpoints and can neither fail nor change it.

Environments in EnvPool's threads or in a JAX program cannot be drawn as they step. So a separate process plays a new
episode by the policy of a checkpoint; its threads, memory, graphics libraries and crashes stay there. Training waits
for it, so that the two do not share the processor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ppo_bench.common.errors import ConfigError, reason
from ppo_bench.common.files import jsonable
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config

LONGEST_SECONDS = 600.0
"""Maximum time that training waits for a video, in seconds; after it the video is given up."""
POLL_SECONDS = 0.1


class Filmer:
    """The videos of a run: `videos/episode_<n>.mp4` after `n` episodes of training, each with a JSON file about it."""

    def __init__(self, config: Config) -> None:
        self._every = config.root.video.every_episodes
        self._config = json.dumps(jsonable(config.resolved))
        self._last: int | None = None

    def require(self) -> float:
        """Raise `ConfigError` if videos are enabled and the environment cannot be drawn; returns the seconds taken."""
        started = time.perf_counter()
        if not self._every:
            return 0.0
        if why := self._run([], []):
            raise ConfigError(why if why.startswith("video.") else f"video.every_episodes={self._every}: {why}")
        return time.perf_counter() - started

    def film(self, folder: Path, checkpoint: Path, episodes: int, stop: Sequence[int]) -> float:
        """Film the policy of `checkpoint`, `episodes` into the run in `folder`, if a video is due; the seconds taken.

        Stops as soon as `stop` is not empty. A video that fails causes a warning.
        """
        if not self._every:
            return 0.0
        videos = folder / "videos"
        if self._last is None:  # a resumed run continues after the videos that are there
            found = (re.fullmatch(r"episode_(\d+)\.json", path.name) for path in videos.glob("*"))
            self._last = max((int(match[1]) for match in found if match), default=0)
        if episodes - self._last < self._every or stop:
            return 0.0
        self._last, started = episodes, time.perf_counter()
        file = videos / f"episode_{episodes:08d}.mp4"
        try:
            videos.mkdir(exist_ok=True)
            for aside in videos.glob(".*.tmp.*"):  # left by a video that was given up
                aside.unlink(missing_ok=True)
            why = self._run([str(checkpoint), str(file)], stop)
        except OSError as error:
            why = str(error)
        if why and not stop:
            say(f"warning: no film after {episodes} episodes: {why}")
        return time.perf_counter() - started

    def _run(self, arguments: list[str], stop: Sequence[int]) -> str | None:
        """The reason, in one line, why the process of a video failed; None if it succeeded."""
        ends = time.monotonic() + LONGEST_SECONDS
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ppo_bench.runs.video", *arguments],
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # a terminal's interrupt reaches the training alone
            )
            assert process.stdin
            try:
                with suppress(BrokenPipeError):
                    process.stdin.write(f"{self._config}\n".encode())
                    process.stdin.flush()
                while (code := process.poll()) is None and not stop and time.monotonic() < ends:
                    time.sleep(POLL_SECONDS)
            finally:
                process.kill()
                process.wait()
                with suppress(BrokenPipeError):
                    process.stdin.close()
            if code is None:
                return f"it was given up after {LONGEST_SECONDS:.0f} seconds"
            errors.seek(0)
            return reason(code, errors.read().decode(errors="replace").splitlines()) if code else None
