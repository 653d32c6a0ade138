"""An mp4 of what gymnasium draws, on machines with and without a display."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.envs.atari import FRAME_SKIP
from ppo_bench.envs.base import Step, Task
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.errors import ConfigError, require

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

ATARI_FPS = 60


class Mp4:
    """A video that is written aside and put at `path` when it is whole."""

    def __init__(self, path: Path, fps: int) -> None:
        self.frames = 0
        self.fps = fps
        self._path = path
        self._aside = path.with_name(f".{path.stem}.tmp{path.suffix}")
        self._container: OutputContainer | None = None
        self._stream: VideoStream

    def add(self, frame: np.ndarray) -> None:
        """One frame more, `[H, W, 3]` uint8, of the size of the first."""
        import av  # in this process: a process beside it for ffmpeg would have to be forked, which JAX's threads forbid

        frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # the pixel format has even sides only
        if self._container is None:
            self._container = av.open(str(self._aside), "w")
            self._stream = self._container.add_stream("libx264", rate=self.fps, options={"crf": "18"})
            self._stream.height, self._stream.width = frame.shape[:2]
            self._stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        self._container.mux(self._stream.encode(picture))
        self.frames += 1

    def finish(self) -> None:
        """Put the whole video in its place."""
        if self._container:
            self._container.mux(self._stream.encode())
            self._container.close()
            self._container = None
            self._aside.replace(self._path)

    def close(self) -> None:
        """Drop a video that was not finished."""
        if self._container:
            self._container.close()
            self._container = None
            self._aside.unlink(missing_ok=True)


def draw_off_screen() -> None:
    """Have MuJoCo and SDL draw in memory, whether or not there is a display; to be called before any environment."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


class FilmedEnv(GymnasiumEnv):
    """One environment of gymnasium that adds a frame to `mp4` after its reset and after every step.

    Comes after `draw_off_screen`. Raises `ConfigError` if it cannot be drawn here.
    """

    def __init__(self, task: Task, path: Path) -> None:
        require("av", "video", "video=true")
        task = dataclasses.replace(task, num_envs=1)
        GymnasiumEnv(task, "sync").close()  # what cannot be made has nothing to do with drawing
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super().__init__(task, "sync", render_mode="rgb_array")
                super().reset([0])
                self.render()
        except Exception as error:  # whatever the environment's renderer and the libraries below it raise
            raise ConfigError(
                f"video=true: {task.id} cannot be drawn ({' '.join(str(error).split())}); classic control needs "
                "pip install 'ppo-bench[video]', MuJoCo needs apt install libegl1 libgl1-mesa-dri"
            ) from error
        self.mp4 = Mp4(path, ATARI_FPS // FRAME_SKIP if task.atari else self.render_fps)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """See `VectorEnv.reset`."""
        obs = super().reset(seeds)
        self.mp4.add(self.render())
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """See `VectorEnv.step`."""
        step = super().step(actions)
        self.mp4.add(self.render())
        return step

    def close(self) -> None:
        """Close the environment; a video that was not finished is dropped."""
        super().close()
        self.mp4.close()
