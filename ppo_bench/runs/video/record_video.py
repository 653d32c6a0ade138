"""One episode of a policy as an mp4 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.runs.play import Agent, play
from ppo_bench.runs.video.scene import Scene

SMALLEST_SIDE = 256
"""Minimum side of a frame, in pixels; smaller frames, such as Procgen's, are enlarged by whole factors."""


def record_video(scene: Scene, agent: Agent, seed: int, path: Path, against_random: bool = False) -> dict[str, Any]:
    """Record the first episode of `agent` in `path`; its return, length, frames, and frames per second."""
    frames = 0
    with open_mp4(path, scene.fps) as add:

        def add_picture() -> None:
            nonlocal frames
            add(scene.draw())
            frames += 1

        (episode,) = play(scene.env, agent, 1, seed, watch=add_picture, against_random=against_random)
    return {"frames": frames, "fps": scene.fps, "return": episode.episode_return, "length": episode.length}


@contextmanager
def open_mp4(path: Path, fps: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that adds a frame, `[H, W, 3]` uint8, to a temporary file, which becomes `path` in the end."""
    import av  # in this process: an ffmpeg process would need a fork, which JAX's threads forbid

    aside = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        with av.open(str(aside), "w") as container:
            stream = container.add_stream("libx264", rate=fps, options={"crf": "18"})
            stream.pix_fmt = "yuv420p"
            is_first = True

            def add(frame: np.ndarray) -> None:
                nonlocal is_first
                factor = max(1, SMALLEST_SIDE // min(frame.shape[:2]))
                frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
                frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # the pixel format needs even sides
                if is_first:
                    stream.height, stream.width = frame.shape[:2]
                    is_first = False
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
                container.mux(stream.encode(picture))

            yield add
            container.mux(stream.encode())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
