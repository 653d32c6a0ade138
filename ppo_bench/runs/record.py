"""A run's folder during training: its run.json, rows, checkpoints and result."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, write_json
from ppo_bench.common.progress import say
from ppo_bench.common.rows import NO_ROWS, Mark, Rows, check_rows
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import USUALLY_TOLD
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Episode, Metrics
from ppo_bench.runs.provenance import differences
from ppo_bench.runs.results import EPISODE_ROWS_PER_ITERATION, EVALUATION_COLUMNS, RECENT_EPISODES, recorded, speeds
from ppo_bench.tuning.machine import peak_memory_bytes

NOTHING: Mapping[str, float | None] = {}


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
    """Iteration of the best checkpoint: the highest mean of `recent_returns`, or in rated games the highest rating."""
    best_return: float | None = None
    cut_episodes: int = 0
    """Episodes in progress when their environments restarted; no statistics of returns include them."""
    cut_steps: int = 0
    resumes: int = 0
    """How many times the run was taken up again from a checkpoint."""
    loaded_steps: int = 0
    """Part of `global_step` that another run trained (`checkpoint.load`); the other sums are of this run alone."""
    together: int = 1
    """Maximum number of seeds trained in one program with this one; the program's speed is shared among them."""
    ratings: dict[str, list[float]] = field(default_factory=dict)
    """Rating and its deviation of each checkpoint of a game, by iteration; see ppo_bench/runs/rating.py."""
    evaluation: dict[str, float | None] = field(default_factory=dict)
    """The latest evaluation, by column; see ppo_bench/runs/evaluation.py."""
    metrics_mark: Mark = NO_ROWS
    episodes_mark: Mark = NO_ROWS

    @classmethod
    def of(cls, loop: Mapping[str, Any]) -> LoopState:
        """The counters in a checkpoint. Raises `ConfigError` if a newer version of this package wrote it."""
        if unknown := loop.keys() - {each.name for each in fields(cls)}:
            raise ConfigError(
                f"the checkpoint is of a newer version of ppo_bench, which counts {', '.join(sorted(unknown))}: "
                "resume it with that version, or rerun=true"
            )
        return cls(**loop)

    @property
    def marks(self) -> dict[str, Mark]:
        """Positions in the files of rows, by their names."""
        return {"metrics.jsonl": Mark(*self.metrics_mark), "episodes.jsonl": Mark(*self.episodes_mark)}

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
        for name in {name for episode in episodes for name in episode.told}:
            told = [episode.told[name] for episode in episodes if name in episode.told]
            self.recent_told[name] = [*self.recent_told.get(name, []), *told][-RECENT_EPISODES:]
        self.recent_returns = [*self.recent_returns, *(e.episode_return for e in episodes)][-RECENT_EPISODES:]

    def cut(self, in_progress: np.ndarray) -> None:
        """Count the episodes that a restart of the environments cuts; `in_progress` holds their steps so far, `[N]`."""
        self.cut_episodes += int(np.count_nonzero(in_progress))
        self.cut_steps += int(in_progress.sum())

    @property
    def recent_mean(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first episode."""
        return _mean(self.recent_returns)

    def note_best_rating(self) -> None:
        """Make the newest checkpoint, just rated, the best so far unless the best one has a higher rating."""
        newest, before = str(self.iteration), self.ratings.get(str(self.best_iteration))
        if before is None or self.ratings[newest] >= before:
            self.best_iteration, self.best_return = self.iteration, None

    def note_best(self) -> None:
        """Make this iteration the best so far if the mean of the last 100 episodes is not below any earlier one."""
        mean = self.recent_mean
        if self.ratings:
            return
        if mean is not None and (self.best_return is None or mean >= self.best_return):
            self.best_iteration, self.best_return = self.iteration, mean


class Record:
    """The files that one run writes to its folder during training."""

    def __init__(
        self, config: Config, folder: Path, loop: LoopState, made_by: dict[str, Any], new: bool, together: int
    ) -> None:
        """Open the files of rows at the position that `loop` records; write run.json if the run is `new`.

        `made_by` is the provenance of this process, with the `execution` of its runner. `together` is the number of
        runs that the same program trains.
        """
        self.config = config
        self.folder = folder
        self.loop = loop
        loop.together = max(loop.together, together)
        if new:
            self._begin(made_by)
        else:
            say(f"resuming {folder} after iteration {loop.iteration} of {config.num_iterations}")
            warn_of_differences(folder, made_by)
            loop.resumes += 1
        self._metrics, self._episodes = (Rows(folder / name, mark) for name, mark in loop.marks.items())
        self._earlier_seconds = loop.wall_seconds

    def _begin(self, made_by: dict[str, Any]) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"schema_version": SCHEMA_VERSION, "started": started, "overrides": list(self.config.overrides)}
        about |= {"num_seeds": self.loop.together, "config": self.config.resolved}
        about["identity"] = self.config.identity
        about["metrics"] = {
            metric.name: metric.tag for metric in metrics_of(self.config.algorithm, self.config.network)
        }
        if loaded := self.config.loaded:
            what = f"after iteration {self.loop.iteration}" if self.loop.iteration else "with the parameters"
            say(f"starting {what} of {self.config.root.checkpoint.load}")
            about["loaded"] = {
                "iteration": loaded.loop["iteration"],
                "arrays_sha256": checkpoint.digest(loaded.arrays),
            }
        write_json(self.folder / "run.json", about | made_by)

    def add(
        self,
        metrics: Metrics,
        episodes: list[Episode],
        seconds: float,
        sps: float,
        evaluated: Mapping[str, float | None] = NOTHING,
    ) -> dict[str, Any]:
        """Record one iteration, `seconds` after the files of rows were opened, at `sps` environment steps per second.

        `evaluated` holds the columns of an evaluation; see ppo_bench/runs/evaluation.py. Returns the row of metrics,
        which waits in memory for `write`.
        """
        loop, first_step, earlier = self.loop, self.loop.global_step, self.loop.episodes
        loop.count(metrics, episodes, self.config.ppo.batch_size)
        if earlier < RECENT_EPISODES <= loop.episodes:
            self._warn_of_untold()
        loop.wall_seconds = self._earlier_seconds + seconds
        if None not in evaluated.values():
            loop.evaluation = dict(evaluated) or loop.evaluation
        row = _metrics_row(loop, metrics, episodes, sps) | dict(evaluated)
        self._metrics.add([row])
        self._episodes.add([_episode_row(first_step, e) for e in episodes[-EPISODE_ROWS_PER_ITERATION:]])
        return row

    def write(self) -> None:
        """Pass the rows that wait to the operating system."""
        self._metrics.write()
        self._episodes.write()

    def _warn_of_untold(self) -> None:
        untold = set(self.config.task.info) - USUALLY_TOLD - set(self.loop.recent_told)
        if untold:
            say(f"warning: env.info: none of {self.loop.episodes} episodes has told {', '.join(sorted(untold))}")

    def save(self, arrays: Arrays) -> Path:
        """Write a checkpoint; older checkpoints stay until `prune`."""
        loop = self.loop
        loop.metrics_mark, loop.episodes_mark = self._metrics.mark(), self._episodes.mark()
        loop.note_best()
        saved = checkpoint.Checkpoint(_lasting(arrays), asdict(loop))
        return checkpoint.save(self.folder / "checkpoints", loop.iteration, saved, loop.best_iteration)

    def snapshot(self, arrays: Arrays) -> None:
        """Write a snapshot for evaluation where the run is interrupted; a run does not resume from it."""
        saved = checkpoint.Checkpoint(_lasting(arrays), asdict(self.loop))
        checkpoint.save_snapshot(self.folder / "checkpoints", self.loop.iteration, saved)

    def prune(self) -> None:
        """Remove the checkpoints that `checkpoint.keep` does not cover, except the best."""
        checkpoint.prune(self.folder / "checkpoints", self.config.root.checkpoint.keep, self.loop.best_iteration)

    def finish(self, setup_seconds: float) -> None:
        """Write the result, which marks the run as complete."""
        if not self.loop.episodes:
            say(f"warning: no episode has ended in {self.loop.global_step - self.loop.loaded_steps:,} steps")
        self.prune()
        self._metrics.close()
        self._episodes.close()
        result = _result(self.config, self.loop, self.folder, setup_seconds)
        write_json(self.folder / "result.json", result | {"num_seeds": self.loop.together})


def _metrics_row(loop: LoopState, metrics: Metrics, episodes: list[Episode], sps: float) -> dict[str, Any]:
    return (
        {"iteration": loop.iteration, "global_step": loop.global_step, "wall_seconds": loop.wall_seconds, "sps": sps}
        | metrics
        | {
            "episodes": len(episodes),
            "episodic_return": _mean([e.episode_return for e in episodes]),
            "episodic_length": _mean([e.length for e in episodes]),
        }
        | {f"info_{name}": _mean([e.told[name] for e in episodes if name in e.told]) for name in loop.recent_told}
    )


def _episode_row(first_step: int, episode: Episode) -> dict[str, Any]:
    return {
        "global_step": first_step + episode.step,
        "env": episode.env,
        "return": episode.episode_return,
        "length": episode.length,
    } | {f"info_{name}": value for name, value in episode.told.items()}


def _lasting(arrays: Arrays) -> Arrays:
    """The arrays without the state of the environments, which restart at every checkpoint."""
    return {name: array for name, array in arrays.items() if not name.startswith("envs.")}


def _result(config: Config, loop: LoopState, folder: Path, setup_seconds: float) -> dict[str, Any]:
    """The summary of a finished run."""
    steady_sps, compile_seconds = speeds(folder / "metrics.jsonl", config.framework.iterations_per_call)
    own_steps, compiles = loop.global_step - loop.loaded_steps, config.framework.compiles
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "complete",
        "env": config.task.name,
        "env_id": config.task.id,
        "backend": config.backend.name,
        "framework": config.framework.name,
        "seed": config.root.seed,
        "total_timesteps": config.root.total_timesteps,
        "global_step": loop.global_step,
        "iterations": loop.iteration,
        "episodes": loop.episodes,
        "final_return_mean": loop.recent_mean,
        "final_return_std": statistics.pstdev(loop.recent_returns) if loop.recent_returns else None,
        **{column: loop.evaluation.get(column) for column in EVALUATION_COLUMNS},
        "info": {name: _mean(numbers) for name, numbers in sorted(loop.recent_told.items())},
        "rating": loop.ratings.get(str(loop.iteration), [None])[0],
        "ratings": loop.ratings,
        "masked_fraction": loop.masked_steps / own_steps,
        "cut_episodes": loop.cut_episodes,
        "cut_steps": loop.cut_steps,
        "loaded_steps": loop.loaded_steps,
        "resumes": loop.resumes,
        "wall_seconds": loop.wall_seconds,
        "setup_seconds": setup_seconds,
        "compile_seconds": compile_seconds if compiles else None,
        "steady_sps": steady_sps,
        "mean_sps": own_steps / (loop.wall_seconds - (compile_seconds if compiles else 0.0)),
        "load_average": os.getloadavg()[0],  # over the last minute, including other programs
        "peak_memory_bytes": peak_memory_bytes(),
    }


def _mean(values: list[float] | list[int]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def warn_of_differences(folder: Path, now: dict[str, Any]) -> None:
    """Warn if versions, hardware or execution, those of `now`, differ from those at the start of the run."""
    if changed := differences(recorded(folder), now):
        say(f"warning: not what the run started with: {'; '.join(changed)}")
