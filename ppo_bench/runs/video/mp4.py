"""An mp4 file, written frame by frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

SMALLEST_SIDE = 256
"""Minimum side of a frame, in pixels; smaller frames, such as Procgen's, are enlarged by whole factors."""


class Mp4:
    """A video in a temporary file that `finish` moves to `path`."""

    def __init__(self, path: Path, fps: int) -> None:
        self.frames = 0
        self.fps = fps
        self._path = path
        self._aside = path.with_name(f".{path.stem}.tmp{path.suffix}")
        self._container: OutputContainer | None = None
        self._stream: VideoStream

    def add(self, frame: np.ndarray) -> None:
        """Add one frame, `[H, W, 3]` uint8, of the size of the first."""
        import av  # in this process: an ffmpeg process would need a fork, which JAX's threads forbid

        factor = max(1, SMALLEST_SIDE // min(frame.shape[:2]))
        frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
        frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # the pixel format needs even sides
        if self._container is None:
            self._container = av.open(str(self._aside), "w")
            self._stream = self._container.add_stream("libx264", rate=self.fps, options={"crf": "18"})
            self._stream.height, self._stream.width = frame.shape[:2]
            self._stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        self._container.mux(self._stream.encode(picture))
        self.frames += 1

    def finish(self) -> None:
        """Complete the video and move it to its path."""
        if self._container:
            self._container.mux(self._stream.encode())
            self._container.close()
            self._container = None
            self._aside.replace(self._path)

    def close(self) -> None:
        """Remove an unfinished video."""
        if self._container:
            self._container.close()
            self._container = None
            self._aside.unlink(missing_ok=True)
