"""What a training logs to the trackers of its run, from its own process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.common.files import is_complete, read_json
from ppo_bench.common.progress import print_status
from ppo_bench.common.rows import read_rows
from ppo_bench.runs.trackers.charts import Charts

Row = Mapping[str, Any]
UNFINISHED = "unfinished"
"""Empty file in a tracker's folder of a run, until the tracker has got all of the run and its result."""


class OpenTracker(Protocol):
    """A tracker of one run, in the process that trains it. What it raises becomes a warning, and the last call."""

    def log(self, values: Mapping[str, float], global_step: int, wall_time: float) -> None:
        """Log the values of an iteration by tag. It ended at `global_step`, and at `wall_time` (seconds since 1970)."""

    def log_video(self, path: Path, global_step: int) -> None:
        """Log the mp4 file of an episode by the checkpoint at `global_step`. A resumed run does not log it again."""

    def finish(self, result: Mapping[str, Any] | None) -> None:
        """Log result.json if the run is complete, else None, and close the tracker."""


class Tracker(Protocol):
    """A choice of the group `tracker`, made from its YAML file."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> OpenTracker:
        """Begin to log the run in `folder`, whose run.json is `run`, or go on with it if it is resumed.

        The rows of an earlier part of the training are logged again. May raise anything.
        """


class Trackers:
    """The open trackers of one run. One that raises is reported, and left alone from then on."""

    def __init__(self, trackers: Mapping[str, Tracker], folder: Path) -> None:
        """Opens `trackers`, by name, and logs what the folder of the run has already."""
        self._folder, self._open = folder, dict[str, OpenTracker]()
        if not trackers:
            return
        run = read_json(folder / "run.json")
        self._charts, self._started = Charts(run), datetime.fromisoformat(run["started"]).timestamp()
        for name, tracker in trackers.items():
            try:
                self._open[name] = tracker.open(folder, run)
                (folder / name).mkdir(exist_ok=True)
                (folder / name / UNFINISHED).touch()
            except (Exception, SystemExit) as error:
                _warn(name, error)
        self.log(read_rows(folder / "metrics.jsonl"), read_rows(folder / "episodes.jsonl"))

    def log(self, rows: Sequence[Row], episodes: Sequence[Row]) -> None:
        """Log rows of metrics.jsonl, with the rows of episodes.jsonl of the same iterations, and new videos."""
        if not self._open:
            return
        first = 0
        for row in rows:
            step = row["global_step"]
            last = bisect_right(episodes, step, first, key=lambda episode: episode["global_step"])
            values, first = self._charts.values(row, episodes[first:last]), last
            self._call_each("log", values, step, self._started + row["wall_seconds"])
        for path, step in recorded_videos(self._folder):
            for name in list(self._open):
                marker = self._folder / name / f"{path.name}.logged"
                try:
                    marker.touch(exist_ok=False)
                except OSError:  # it has the video, or a full disk cannot note that
                    continue
                if not self._call(name, "log_video", path, step):
                    marker.unlink()

    def finish(self) -> None:
        """Close the trackers, with the result of the run if it is complete."""
        self.log([], [])
        result = read_json(self._folder / "result.json") if is_complete(self._folder) else None
        self._call_each("finish", result)
        for name in self._open if result else ():
            (self._folder / name / UNFINISHED).unlink(missing_ok=True)
        self._open.clear()

    def _call_each(self, method: str, *arguments: Any) -> None:
        for name in list(self._open):
            self._call(name, method, *arguments)

    def _call(self, name: str, method: str, *arguments: Any) -> bool:
        """Call a method of an open tracker; whether it raised nothing."""
        try:
            getattr(self._open[name], method)(*arguments)
        except (Exception, SystemExit) as error:
            _warn(name, error)
            del self._open[name]
        return name in self._open


def lacks_result(folder: Path, name: str) -> bool:
    """Whether the tracker `name` has not got all of the finished run in `folder`."""
    return not (folder / name).exists() or (folder / name / UNFINISHED).exists()


def _warn(name: str, error: BaseException) -> None:
    print_status(f"warning: tracker={name} has stopped: {type(error).__name__}: {one_line(error)}")


def recorded_videos(folder: Path) -> Iterator[tuple[Path, int]]:
    """The mp4 files of a run's training and evaluations, each with the `global_step` of its checkpoint."""
    for path in sorted((folder / "evaluations").glob("*.mp4")):
        about = path.with_suffix(".json")
        try:
            if about.exists():
                yield path, int(read_json(about)["global_step"])
        except (ConfigError, KeyError, TypeError, ValueError):  # damaged
            pass
