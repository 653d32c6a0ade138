"""The only outer loop: it drives any runner, and alone knows of progress, results, checkpoints, films and trackers."""

from __future__ import annotations

import math
import resource
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench import checkpoint
from ppo_bench.config import Config
from ppo_bench.errors import Failed, Interrupted
from ppo_bench.progress import ProgressDisplay, say
from ppo_bench.provenance import differences, provenance
from ppo_bench.results import (
    EPISODE_ROWS_PER_ITERATION,
    NO_ROWS,
    SCHEMA_VERSION,
    Mark,
    Rows,
    check_rows,
    choose_folder,
    own_folder,
    read_json,
    speeds,
    write_json,
)
from ppo_bench.runners.base import Episode, Metrics, Problem, Runner
from ppo_bench.trackers.mirrors import Mirrors
from ppo_bench.video.filmer import Filmer

RECENT_EPISODES = 100

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Terminals and systems send the first two; clusters warn of a time limit or a preemption by the others."""


@dataclass
class LoopState:
    """The counters of the outer loop; part of every checkpoint."""

    iteration: int = 0
    global_step: int = 0
    wall_seconds: float = 0.0
    episodes: int = 0
    masked_steps: float = 0.0
    recent_returns: list[float] = field(default_factory=list)
    """Of the last 100 episodes."""
    best_iteration: int | None = None
    """Of the checkpoint at which their mean was highest."""
    best_return: float | None = None
    loaded_steps: int = 0
    """Part of `global_step` that was another run's (`checkpoint.load`); the other sums are of this run alone."""
    metrics_mark: Mark = NO_ROWS
    episodes_mark: Mark = NO_ROWS

    def count(self, metrics: Metrics, episodes: list[Episode], batch_size: int) -> None:
        """Take in one iteration."""
        self.iteration += 1
        self.global_step += batch_size
        self.episodes += len(episodes)
        self.masked_steps += metrics.masked_fraction * batch_size
        self.recent_returns = [*self.recent_returns, *(e.episode_return for e in episodes)][-RECENT_EPISODES:]

    def note_best(self) -> None:
        """Take this iteration for the best so far if the mean of the last 100 episodes is not below any earlier one."""
        mean = _mean(self.recent_returns)
        if mean is not None and (self.best_return is None or mean >= self.best_return):
            self.best_iteration, self.best_return = self.iteration, mean


def build_runner(config: Config) -> Runner[Any]:
    """The runner of a configuration. Raises `ConfigError` if the environment or the device cannot be had."""
    env = config.backend.make(config.task)
    try:
        network = config.network.build(env.observation_space, env.action_space)
        problem = Problem(env, network, config.ppo, config.num_iterations, config.root.precision, config.root.device)
        return config.framework.runner(problem)
    except BaseException:
        env.close()
        raise


def train(config: Config, started_at: float) -> Path:
    """Train to the end, from the newest checkpoint if there is one; the run's folder.

    `started_at` is the `time.perf_counter()` of the program's start. Raises `Interrupted` on `STOP_SIGNALS`.
    """
    folder = choose_folder(config.run_folder, config.root.rerun)
    if (folder / "result.json").exists():
        _report_finished(folder)
        with Mirrors(folder, config.trackers) as mirrors:
            mirrors.start()
        return folder
    filmer = Filmer(config)
    started_at += filmer.require()
    runner = build_runner(config)
    try:
        # Before anything is on disk, since a checkpoint of another network ends here.
        start = None if any((folder / "checkpoints").glob("iteration_*")) else _start(config, runner)
        with own_folder(folder), Mirrors(folder, config.trackers) as mirrors:
            _train(config, runner, folder, start, started_at, mirrors, filmer)
    finally:
        runner.close()
    return folder


def _start(config: Config, runner: Runner[Any]) -> tuple[LoopState, Any]:
    """Counters and state with which a new run begins: initial weights, or what `checkpoint.load` names."""
    if config.source is None:
        return LoopState(), runner.init(config.root.seed)
    iteration, global_step = config.source.loop["iteration"], config.source.loop["global_step"]
    loop = LoopState(iteration, global_step, loaded_steps=global_step)
    # What is random is this run's own.
    return loop, runner.restore(config.source.arrays | {"seed": np.array(config.root.seed)})


def _train(
    config: Config,
    runner: Runner[Any],
    folder: Path,
    start: tuple[LoopState, Any] | None,
    started_at: float,
    mirrors: Mirrors,
    filmer: Filmer,
) -> None:
    saved = checkpoint.load_newest(folder / "checkpoints", say)
    if saved:
        loop, state = LoopState(**saved.loop), runner.restore(saved.arrays)
        say(f"resuming {folder} after iteration {loop.iteration} of {config.num_iterations}")
        _warn_of_differences(folder, dict(runner.execution))
    else:
        loop, state = start or _start(config, runner)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"schema_version": SCHEMA_VERSION, "started": started, "config": config.resolved}
        if config.source:
            say(f"starting after iteration {loop.iteration} of {config.root.checkpoint.load}")
            about["loaded"] = {"iteration": loop.iteration, "arrays_sha256": checkpoint.digest(config.source.arrays)}
        write_json(folder / "run.json", about | provenance() | {"execution": dict(runner.execution)})
    files = {folder / "metrics.jsonl": Mark(*loop.metrics_mark), folder / "episodes.jsonl": Mark(*loop.episodes_mark)}
    for path, mark in files.items():  # both, before either is touched
        check_rows(path, mark)
    metrics_rows, episode_rows = (Rows(path, mark) for path, mark in files.items())
    mirrors.start()
    title = f"{config.task.name} {config.backend.name} {config.framework.name} seed {config.root.seed}"
    setup_seconds = time.perf_counter() - started_at
    earlier_seconds, loop_started = loop.wall_seconds, time.perf_counter()
    at_once = config.framework.iterations_per_call
    with _stop_requests() as stop, ProgressDisplay(title, config.num_iterations * config.ppo.batch_size) as display:
        while loop.iteration < config.num_iterations:
            if loop.iteration % at_once == 0:
                call_started, called_for = time.perf_counter(), min(at_once, config.num_iterations - loop.iteration)
            first_step = loop.global_step
            state, metrics, episodes = runner.step(state)
            _require_finite(metrics, folder, loop.iteration, config.root.checkpoint.every_iterations)
            loop.count(metrics, episodes, config.ppo.batch_size)
            now = time.perf_counter()
            loop.wall_seconds = earlier_seconds + now - loop_started
            if loop.iteration % at_once == 1 % at_once:  # the first of those that one call has run
                sps = called_for * config.ppo.batch_size / (now - call_started)
            metrics_rows.append([_metrics_row(loop, metrics, episodes, sps)])
            episode_rows.append([_episode_row(first_step, e) for e in episodes[:EPISODE_ROWS_PER_ITERATION]])
            display.update(loop.global_step, _mean(loop.recent_returns), sps)
            if loop.iteration % config.root.checkpoint.every_iterations == 0 or loop.iteration == config.num_iterations:
                loop.metrics_mark, loop.episodes_mark = metrics_rows.mark(), episode_rows.mark()
                loop.note_best()
                saved = checkpoint.Checkpoint(runner.export(state), asdict(loop))
                newest = checkpoint.save(
                    folder / "checkpoints", loop.iteration, saved, config.root.checkpoint.keep, loop.best_iteration
                )
                # Seconds that are not training's, and in none of its times.
                loop_started += filmer.film(folder, newest, loop.episodes, stop)
                if loop.iteration < config.num_iterations:
                    state = runner.restart(state, loop.iteration)
            if stop and loop.iteration < config.num_iterations:
                raise Interrupted(_what_is_kept(folder, loop.iteration, config.root.checkpoint.every_iterations))
    metrics_rows.close()
    episode_rows.close()
    write_json(folder / "result.json", _result(config, loop, folder, setup_seconds))


def _require_finite(metrics: Metrics, folder: Path, done: int, every_iterations: int) -> None:
    """Raise `Failed` if learning has left the numbers; `done` iterations came before this one."""
    for name, value in metrics._asdict().items():
        if name != "explained_variance" and not math.isfinite(value):  # that one is undefined for constant returns
            kept = done - done % every_iterations
            raise Failed(
                f"{name} is {value} in iteration {done + 1}: learning diverged; try a smaller ppo.learning_rate. "
                + (f"{folder} is kept up to iteration {kept}" if kept else "It was before the first checkpoint")
            )


def _what_is_kept(folder: Path, iteration: int, every_iterations: int) -> str:
    kept = iteration - iteration % every_iterations
    if kept == 0:
        return f"stopped after iteration {iteration}, before the first checkpoint; the same command starts again"
    return (
        f"stopped after iteration {iteration}; {folder} is kept up to iteration {kept}; the same command resumes there"
    )


def _metrics_row(loop: LoopState, metrics: Metrics, episodes: list[Episode], sps: float) -> dict[str, Any]:
    return (
        {"iteration": loop.iteration, "global_step": loop.global_step, "wall_seconds": loop.wall_seconds, "sps": sps}
        | metrics._asdict()
        | {
            "episodes": len(episodes),
            "episodic_return": _mean([e.episode_return for e in episodes]),
            "episodic_length": _mean([e.length for e in episodes]),
        }
    )


def _episode_row(first_step: int, episode: Episode) -> dict[str, Any]:
    return {
        "global_step": first_step + episode.step,
        "env": episode.env,
        "return": episode.episode_return,
        "length": episode.length,
    }


def _result(config: Config, loop: LoopState, folder: Path, setup_seconds: float) -> dict[str, Any]:
    """The summary of a finished run."""
    steady_sps, compile_seconds = speeds(folder / "metrics.jsonl", config.framework.iterations_per_call)
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
        "final_return_mean": _mean(loop.recent_returns),
        "final_return_std": statistics.pstdev(loop.recent_returns) if loop.recent_returns else None,
        "masked_fraction": loop.masked_steps / (loop.global_step - loop.loaded_steps),
        "loaded_steps": loop.loaded_steps,
        "wall_seconds": loop.wall_seconds,
        "setup_seconds": setup_seconds,
        "compile_seconds": compile_seconds if config.framework.compiles else None,
        "steady_sps": steady_sps,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _mean(values: list[float] | list[int]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _report_finished(folder: Path) -> None:
    result = read_json(folder / "result.json")
    say(f"{folder} is done: final_return_mean {result.get('final_return_mean')}; rerun=true trains afresh beside it")
    _warn_of_differences(folder)


def _warn_of_differences(folder: Path, execution: dict[str, object] | None = None) -> None:
    now = provenance() | ({"execution": execution} if execution else {})
    if changed := differences(read_json(folder / "run.json"), now):
        say(f"warning: not what the run started with: {'; '.join(changed)}")


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """A list that is empty until one of `STOP_SIGNALS` arrives; a second SIGINT stops at once."""
    received: list[int] = []

    def request(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
