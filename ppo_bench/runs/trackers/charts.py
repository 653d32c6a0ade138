"""The tags and values under which rows of a run appear in trackers: those of CleanRL's scripts (docs.cleanrl.dev)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ppo_bench.runs.results import mean

TAGS = {
    "episodic_return": "charts/episodic_return",
    "episodic_length": "charts/episodic_length",
    "sps": "charts/SPS_update",
    "std": "charts/std",
    "evaluation_return_greedy": "evaluation/return_greedy",
    "evaluation_return_sampled": "evaluation/return_sampled",
}
"""Tags of the columns that every algorithm has; run.json has those of an algorithm's metrics."""
AVERAGED_EPISODES = 20
"""Number of episodes in `charts/avg_episodic_return`."""


class Charts:
    """The charts of one run. It takes the rows of metrics.jsonl and episodes.jsonl from the first on, in order."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        """`run` is run.json."""
        self._tags = TAGS | run["metrics"]
        self._players = run["config"]["env"]["players"]
        self._recent = deque[float](maxlen=AVERAGED_EPISODES)
        ppo = run["config"]["ppo"]
        self._batch_size, self._first_step = ppo["num_envs"] * ppo["num_steps"], -1

    def values(self, row: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Values by tag, without missing ones, of an iteration's `row` and of the `episodes` that ended in it."""
        if self._first_step < 0:
            self._first_step = row["global_step"] - self._batch_size  # above 0 after checkpoint.load
        info_tags = {name: f"info/{name.removeprefix('info_')}" for name in row if name.startswith("info_")}
        values = {tag: row[name] for name, tag in (self._tags | info_tags).items() if row.get(name) is not None}
        values["charts/SPS"] = (row["global_step"] - self._first_step) / row["wall_seconds"]
        if "intrinsic_value_loss" in row:
            values["losses/value_loss"] = row["value_loss"] + row["intrinsic_value_loss"]
        self._recent += [episode["return"] for episode in episodes]
        if self._recent:
            values["charts/avg_episodic_return"] = sum(self._recent) / len(self._recent)
        for player in range(self._players) if self._players > 1 else ():
            own = [episode for episode in episodes if episode["env"] % self._players == player]
            for column in ("return", "length"):
                if (value := mean([episode[column] for episode in own])) is not None:
                    values[f"charts/episodic_{column}-player{player}"] = value
        return values
