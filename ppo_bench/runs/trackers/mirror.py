"""Common parts of the trackers: the tags under which columns appear, and the videos that a run has written so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import read_json

OF_EVERY_RUN = {
    "episodic_return": "charts/episodic_return",
    "episodic_length": "charts/episodic_length",
    "sps": "charts/SPS",
    "std": "charts/std",
    "evaluation_return_greedy": "evaluation/return_greedy",
    "evaluation_return_sampled": "evaluation/return_sampled",
}
"""CleanRL's tags (docs.cleanrl.dev) for the outer loop's measurements; an algorithm declares those of its metrics."""


class Mirror(Protocol):
    """An open tracker of one run."""

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows of metrics.jsonl, in their order."""

    def show(self, video: Path, global_step: int) -> None:
        """Add a video of the checkpoint at `global_step`."""

    def conclude(self, result: dict[str, Any] | None) -> None:
        """Add result.json if the run is complete, else None; no more rows follow."""

    def close(self) -> None:
        """Flush and close the tracker."""


def tags_of(run: dict[str, Any]) -> dict[str, str]:
    """The tag of each column of metrics.jsonl, from run.json."""
    return OF_EVERY_RUN | run["metrics"]


def tagged(row: dict[str, Any], tags: dict[str, str]) -> dict[str, float]:
    """The values of a row by tag, without missing ones; numbers of `env.info` have tags `info/<name>`."""
    tags = tags | {name: f"info/{name.removeprefix('info_')}" for name in row if name.startswith("info_")}
    return {tag: row[name] for name, tag in tags.items() if row.get(name) is not None}


def videos(folder: Path) -> list[tuple[Path, int]]:
    """The mp4 files of a run's training and evaluations, each with the `global_step` of its checkpoint."""
    paths = [path for kind in ("videos", "evaluations") for path in sorted((folder / kind).glob("*.mp4"))]
    steps = [(path, _step_of(path.with_suffix(".json"))) for path in paths]
    return [(path, step) for path, step in steps if step is not None]


def _step_of(about: Path) -> int | None:
    """The `global_step` in the JSON file of a video; None if the file is missing or damaged."""
    try:
        return int(read_json(about)["global_step"]) if about.exists() else None
    except (ConfigError, KeyError, TypeError, ValueError):
        return None
