"""What trackers have in common: the names under which a row appears, and the rows that a run has written so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.common.files import read_json

OF_EVERY_RUN = {
    "episodic_return": "charts/episodic_return",
    "episodic_length": "charts/episodic_length",
    "sps": "charts/SPS",
    "evaluation_return_greedy": "evaluation/return_greedy",
    "evaluation_return_sampled": "evaluation/return_sampled",
}
"""CleanRL's tags (docs.cleanrl.dev) for what the outer loop measures; those of the algorithm are declared with it."""


class Mirror(Protocol):
    """An open tracker of one run."""

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take rows of metrics.jsonl, in their order."""

    def show(self, video: Path, global_step: int) -> None:
        """Take a video of the checkpoint at `global_step`."""

    def conclude(self, result: dict[str, Any] | None) -> None:
        """Take result.json if the run is complete; there are no more rows."""

    def close(self) -> None:
        """Make all of it last."""


def tags_of(run: dict[str, Any]) -> dict[str, str]:
    """The tag of each column of metrics.jsonl that has one, from run.json; that of an older version has PPO's."""
    declared = run.get("metrics") or {metric.name: metric.tag for metric in metrics_of(Ppo("ppo"))}
    return OF_EVERY_RUN | declared


def tagged(row: dict[str, Any], tags: dict[str, str]) -> dict[str, float]:
    """The values of a row that exist, by tag; numbers of `env.info` have one of their own."""
    tags = tags | {name: f"info/{name.removeprefix('info_')}" for name in row if name.startswith("info_")}
    return {tag: row[name] for name, tag in tags.items() if row.get(name) is not None}


def videos(folder: Path) -> list[tuple[Path, int]]:
    """The mp4 files of a run's training and evaluations, each with the `global_step` of its checkpoint."""
    paths = [path for kind in ("videos", "evaluations") for path in sorted((folder / kind).glob("*.mp4"))]
    files = [(path, path.with_suffix(".json")) for path in paths]
    return [(path, int(read_json(about)["global_step"])) for path, about in files if about.exists()]
