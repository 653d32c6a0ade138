"""A run's folder during training: its run.json, rows, checkpoints and result."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.files import SCHEMA_VERSION, write_json
from ppo_bench.common.progress import print_status
from ppo_bench.common.rows import Rows
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import DEFAULT_INFO_KEYS
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.distributions import std_from_entropy
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Episode, Metrics
from ppo_bench.runs.loop_state import LoopState
from ppo_bench.runs.provenance import differences
from ppo_bench.runs.results import (
    EPISODE_ROWS_PER_ITERATION,
    EVALUATION_COLUMNS,
    RECENT_EPISODES,
    mean,
    read_run_json,
    speeds,
)
from ppo_bench.runs.trackers.tracking import Trackers
from ppo_bench.runs.video.video_recorder import VideoRecorder
from ppo_bench.tuning.machine import peak_memory_bytes


class RunWriter:
    """The files that one run writes to its folder during training."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        loop: LoopState,
        made_by: dict[str, Any],
        new: bool,
        together: int,
        action_size: int = 0,
    ) -> None:
        """Open the files of rows at the position that `loop` records; write run.json if the run is `new`.

        `made_by` is the provenance of this process, with the `execution` of its runner. `together` is the number of
        runs that the same program trains. `action_size` is the number of components of continuous actions, else 0.
        """
        self.config = config
        self._action_size = action_size
        self._tracking: Trackers | None = None
        self._unlogged_rows, self._unlogged_episodes = list[dict[str, Any]](), list[dict[str, Any]]()
        self.folder = folder
        self.loop = loop
        loop.together = max(loop.together, together)
        if new:
            self._write_run_json(made_by)
        else:
            print_status(f"resuming {folder} after iteration {loop.iteration} of {config.num_iterations}")
            warn_of_differences(folder, made_by)
            loop.resumed_at.append(loop.iteration)
        self._metrics, self._episodes = (Rows(folder / name, mark) for name, mark in loop.marks.items())
        self._earlier_seconds = loop.wall_seconds
        self.video_recorder = VideoRecorder(config.root.video.every_episodes, loop.video_episodes)

    def _write_run_json(self, made_by: dict[str, Any]) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"schema_version": SCHEMA_VERSION, "started": started, "overrides": list(self.config.overrides)}
        about |= {"num_seeds": self.loop.together, "config": self.config.resolved}
        about["identity"] = self.config.identity
        about["metrics"] = {metric.name: metric.tag for metric in metrics_of(self.config.algorithm)}
        if loaded := self.config.loaded:
            what = f"after iteration {self.loop.iteration}" if self.loop.iteration else "with the parameters"
            print_status(f"starting {what} of {self.config.root.checkpoint.load}")
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
        evaluated: Mapping[str, float | None],
    ) -> dict[str, Any]:
        """Record one iteration, `seconds` after the files of rows were opened, at `sps` environment steps per second.

        `evaluated` holds the columns of an evaluation; see ppo_bench/runs/callbacks.py. Returns the row of metrics,
        which waits in memory for `write`.
        """
        loop, first_step, earlier = self.loop, self.loop.global_step, self.loop.episodes
        loop.count(metrics, episodes, self.config.ppo.batch_size)
        if earlier < RECENT_EPISODES <= loop.episodes:
            self._warn_of_missing_info()
        loop.wall_seconds = self._earlier_seconds + seconds
        if None not in evaluated.values():
            loop.evaluation = dict(evaluated)
        row = _metrics_row(loop, metrics | self._std(metrics), episodes, sps) | dict(evaluated)
        ended = [_episode_row(first_step, e) for e in episodes[-EPISODE_ROWS_PER_ITERATION:]]
        self._metrics.add([row])
        self._episodes.add(ended)
        if self._tracking:
            self._unlogged_rows.append(row)
            self._unlogged_episodes += ended
        return row

    def write(self) -> None:
        """Pass the rows that wait to the operating system, and to the trackers."""
        self._metrics.write()
        self._episodes.write()
        if self._tracking:
            self._tracking.log(self._unlogged_rows, self._unlogged_episodes)
            self._unlogged_rows.clear()
            self._unlogged_episodes.clear()

    @contextmanager
    def open_trackers(self) -> Iterator[None]:
        """A context in which the configuration's trackers are open."""
        self._tracking = Trackers(self.config.trackers, self.folder)
        try:
            yield
        finally:
            self._tracking.finish()

    def _std(self, metrics: Metrics) -> Metrics:
        """The column `std` of a policy of continuous actions."""
        if not self._action_size or "entropy" not in metrics:
            return {}
        return {"std": std_from_entropy(metrics["entropy"], self._action_size)}

    def _warn_of_missing_info(self) -> None:
        missing = set(self.config.task.info) - DEFAULT_INFO_KEYS - set(self.loop.recent_told)
        if missing:
            print_status(
                f"warning: env.info: none of {self.loop.episodes} episodes has reported {', '.join(sorted(missing))}"
            )

    def save(self, arrays: Arrays) -> Path:
        """Write a checkpoint; older checkpoints stay until `prune`."""
        loop = self.loop
        loop.metrics_mark, loop.episodes_mark = self._metrics.mark(), self._episodes.mark()
        loop.update_best()
        loop.video_episodes = self.video_recorder.plan(loop.episodes)
        # Environments restart at every checkpoint, which therefore lacks their state.
        lasting = {name: array for name, array in arrays.items() if not name.startswith("envs.")}
        saved = checkpoint.Checkpoint(lasting, asdict(loop))
        return checkpoint.save(self.folder / "checkpoints", loop.iteration, saved, loop.best_iteration)

    def prune(self) -> None:
        """Remove the checkpoints that `checkpoint.keep` does not cover, except the best."""
        checkpoint.prune(self.folder / "checkpoints", self.config.root.checkpoint.keep, self.loop.best_iteration)

    def finish(self, setup_seconds: float) -> None:
        """Write the result, which marks the run as complete."""
        if not self.loop.episodes:
            print_status(f"warning: no episode has ended in {self.loop.global_step - self.loop.loaded_steps:,} steps")
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
            "episodic_return": mean([e.episode_return for e in episodes]),
            "episodic_length": mean([e.length for e in episodes]),
        }
        | {f"info_{name}": mean([e.info[name] for e in episodes if name in e.info]) for name in loop.recent_told}
    )


def _episode_row(first_step: int, episode: Episode) -> dict[str, Any]:
    return {
        "global_step": first_step + episode.step,
        "env": episode.env,
        "return": episode.episode_return,
        "length": episode.length,
    } | {f"info_{name}": value for name, value in episode.info.items()}


def _result(config: Config, loop: LoopState, folder: Path, setup_seconds: float) -> dict[str, Any]:
    """The summary of a finished run."""
    first = loop.loaded_steps // config.ppo.batch_size  # the iterations of another run have no rows
    resumed = [iteration - first for iteration in loop.resumed_at]
    steady_sps, starting = speeds(folder / "metrics.jsonl", resumed)
    compiling = starting if config.framework.compiles else []
    own_steps = loop.global_step - loop.loaded_steps
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
        "info": {name: mean(numbers) for name, numbers in sorted(loop.recent_told.items())},
        "masked_fraction": loop.masked_steps / own_steps,
        "loaded_steps": loop.loaded_steps,
        "resumes": len(loop.resumed_at),
        "wall_seconds": loop.wall_seconds,
        "setup_seconds": setup_seconds,
        "compile_seconds": sum(compiling) if compiling else None,
        # Part of `compile_seconds` by the iteration after which the run was resumed.
        "recompile_seconds": dict(zip(loop.resumed_at, compiling[1:], strict=False)),
        "steady_sps": steady_sps,
        "mean_sps": own_steps / (loop.wall_seconds - sum(compiling)),
        "load_average": os.getloadavg()[0],  # over the last minute, including other programs
        "peak_memory_bytes": peak_memory_bytes(),
    }


def warn_of_differences(folder: Path, now: dict[str, Any]) -> None:
    """Warn if versions, hardware or execution, those of `now`, differ from those at the start of the run."""
    if changed := differences(read_run_json(folder), now):
        print_status(f"warning: not what the run started with: {'; '.join(changed)}")
