"""`tracker=tensorboard`: event files by tensorboardX, which needs neither PyTorch nor TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import require


@dataclass(frozen=True)
class Tensorboard:
    """`tracker=tensorboard`; see conf/tracker/tensorboard.yaml."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> TensorboardRun:
        """A new event file; the steps of earlier ones are purged, so that no step of a resumed run is there twice."""
        require("tensorboardX", "tensorboard", "tracker=tensorboard")
        from tensorboardX import SummaryWriter

        writer = SummaryWriter(str(folder / "tensorboard"), purge_step=0)
        writer.add_text("run", _as_code_block({key: value for key, value in run.items() if key != "schema_version"}))
        return TensorboardRun(writer)


class TensorboardRun:
    """The event file of a run, an `OpenTracker`. Videos stay in the run's folder."""

    def __init__(self, writer: Any) -> None:
        """`writer` is a `tensorboardX.SummaryWriter`."""
        self._writer = writer

    def log(self, values: Mapping[str, float], global_step: int, wall_time: float) -> None:
        """See `OpenTracker.log`: a scalar for each value, all in one event, which is eight times as fast."""
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.file_writer.add_summary(Summary(value=scalars), global_step, wall_time)

    def log_video(self, path: Path, global_step: int) -> None:
        """Nothing: TensorBoard shows no mp4 files."""

    def finish(self, result: Mapping[str, Any] | None) -> None:
        """See `OpenTracker.finish`; the result is shown as text."""
        if result:
            self._writer.add_text("result", _as_code_block(result))
        self._writer.close()


def _as_code_block(value: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(value, indent=2)}\n```"
