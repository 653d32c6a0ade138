"""`tracker=tensorboard`: event files by TensorBoard's own writer, which needs neither PyTorch nor TensorFlow."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import require
from ppo_bench.runs.trackers.mirror import tagged, tags_of

GIF_FRAMES, GIF_EVERY = 250, 2
"""GIF of a video in TensorBoard: maximum number of frames, and the interval between them."""


@dataclass(frozen=True)
class Tensorboard:
    """`tracker=tensorboard`; see conf/tracker/tensorboard.yaml."""

    def require(self) -> None:
        """Nothing to check: there are no options."""

    def open(self, folder: Path, run: dict[str, Any]) -> Events:
        """A new event file; earlier ones are emptied, so that rows after the last checkpoint do not appear twice."""
        require("tensorboard", "tensorboard", "tracker=tensorboard")
        for old in (folder / "tensorboard").glob("events.out.tfevents.*"):
            os.truncate(old, 0)  # a TensorBoard that was reading a deleted file would wait for it
        return Events(folder / "tensorboard", run)


class Events:
    """The event file of a run."""

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))
        self._tags = tags_of(run)
        self._started = datetime.fromisoformat(run["started"]).timestamp()
        # Makes a running TensorBoard forget the steps of earlier files.
        self._writer.add_event(
            Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.SessionStatus.Value("START")))
        )
        about = {key: value for key, value in run.items() if key != "schema_version"}
        self._text("run", f"```json\n{json.dumps(about, indent=2)}\n```")

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add a scalar for each tag of each row, with the time at which the row was written."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for row in rows:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in tagged(row, self._tags).items()]
            self._add(Summary(value=values), row["global_step"], self._started + row["wall_seconds"])
        self._writer.flush()

    def show(self, video: Path, global_step: int) -> None:
        """See `Mirror.show`; a video is shown as a GIF."""
        self._add(_gif(video), global_step, video.stat().st_mtime)
        self._writer.flush()

    def conclude(self, result: dict[str, Any] | None) -> None:
        """See `Mirror.conclude`; the result is shown as text."""
        if result:
            self._text("result", f"```json\n{json.dumps(result, indent=2)}\n```")
        self._writer.flush()

    def close(self) -> None:
        """See `Mirror.close`."""
        self._writer.close()

    def _text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DataType

        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DataType.Value("DT_STRING"), string_val=[text.encode()])
        self._add(Summary(value=[Summary.Value(tag=tag, metadata=plugin, tensor=tensor)]), 0, time.time())

    def _add(self, summary: Any, step: int, wall_time: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(summary=summary, step=step, wall_time=wall_time))


def _gif(path: Path) -> Any:
    import av
    from tensorboard.compat.proto.summary_pb2 import Summary

    with av.open(str(path)) as file:
        frames = [frame.to_image() for frame in islice(file.decode(video=0), 0, GIF_FRAMES * GIF_EVERY, GIF_EVERY)]
    encoded = io.BytesIO()
    frames[0].save(encoded, format="GIF", save_all=True, append_images=frames[1:], duration=20 * GIF_EVERY, loop=0)
    image = Summary.Image(
        width=frames[0].width, height=frames[0].height, colorspace=3, encoded_image_string=encoded.getvalue()
    )
    return Summary(value=[Summary.Value(tag=f"videos/{path.stem}", image=image)])
