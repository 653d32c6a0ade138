"""Counters of the outer loop, which every checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ppo_bench.common.rows import NO_ROWS, FilePosition, check_rows
from ppo_bench.runners.base import Episode, Metrics
from ppo_bench.runs.results import RECENT_EPISODES, mean


@dataclass
class LoopState:
    """Counters of the outer loop; part of every checkpoint."""

    iteration: int = 0
    global_step: int = 0
    wall_seconds: float = 0.0
    episodes: int = 0
    masked_steps: float = 0.0
    recent_returns: list[float] = field(default_factory=list)
    """Returns of the last 100 episodes."""
    recent_told: dict[str, list[float]] = field(default_factory=dict)
    """Values of the numbers in `env.info` by name, from the last 100 episodes that reported each."""
    best_iteration: int | None = None
    """Iteration of the best checkpoint: the highest mean of `recent_returns`, the newest of several."""
    best_return: float | None = None
    best_episodes: int = RECENT_EPISODES
    """Number of `recent_returns` of the best checkpoint."""
    resumed_at: list[int] = field(default_factory=list)
    """Iterations of checkpoints from which the run was resumed: compiled programs were loaded or compiled again. A
    resumption that did not reach another checkpoint has left nothing and does not count."""
    loaded_steps: int = 0
    """Part of `global_step` that another run trained (`checkpoint.load`); the other sums are of this run alone."""
    together: int = 1
    """Maximum number of runs in the program that trained this one, which share its speed; `num_seeds` in the files."""
    evaluation: dict[str, float | None] = field(default_factory=dict)
    """The latest evaluation, by column; see ppo_bench/runs/callbacks.py."""
    video_episodes: int = 0
    """Number of `episodes` at the latest video."""
    metrics_mark: FilePosition = NO_ROWS
    episodes_mark: FilePosition = NO_ROWS

    @classmethod
    def from_checkpoint(cls, loop: Mapping[str, Any]) -> LoopState:
        """The counters in a checkpoint; those of other versions of this package are ignored."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in loop.items() if name in known})

    @property
    def marks(self) -> dict[str, FilePosition]:
        """Positions in the files of rows, by their names."""
        return {"metrics.jsonl": FilePosition(*self.metrics_mark), "episodes.jsonl": FilePosition(*self.episodes_mark)}

    def check_files(self, folder: Path) -> None:
        """Raise `ConfigError` unless the files of rows in a run's folder begin with the rows that this counts."""
        for name, mark in self.marks.items():
            check_rows(folder / name, mark)

    def count(self, metrics: Metrics, episodes: list[Episode], batch_size: int) -> None:
        """Add one iteration to the counters."""
        self.iteration += 1
        self.global_step += batch_size
        self.episodes += len(episodes)
        self.masked_steps += metrics["masked_fraction"] * batch_size
        for episode in episodes:
            for name, number in episode.info.items():
                self.recent_told.setdefault(name, []).append(number)
        self.recent_returns += [episode.episode_return for episode in episodes]
        for recent in (self.recent_returns, *self.recent_told.values()):
            del recent[:-RECENT_EPISODES]

    @property
    def recent_mean(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first episode."""
        return mean(self.recent_returns)

    def update_best(self) -> None:
        """Make this iteration the best so far if the mean of the last 100 episodes is not below any earlier one.

        Until 100 episodes have ended, a mean over more episodes is better: one lucky episode is no record.
        """
        mean, count = self.recent_mean, len(self.recent_returns)
        if mean is None:
            return
        if self.best_return is None or count > self.best_episodes or mean >= self.best_return:
            self.best_iteration, self.best_return, self.best_episodes = self.iteration, mean, count
