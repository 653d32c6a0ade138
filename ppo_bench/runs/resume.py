"""Where a training of several runs begins or goes on, from the checkpoints in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.algorithms.base import LEARNING_RATE_FACTOR
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import checkpoint
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.loop_state import LoopState


class SeedRun(NamedTuple):
    """One of the runs that are trained together."""

    config: Config
    folder: Path


def next_group(runs: Sequence[SeedRun]) -> list[SeedRun]:
    """The runs to train together next, those that are ahead first.

    Runs that are too far behind the others are left for later. A run is trained together with the one that is furthest
    behind if it has the newest checkpoint of that run, or that run has none, and if it is ahead by at most one.
    """
    first, interval, candidates = _first_iteration(runs), runs[0].config.root.checkpoint.every_iterations, list(runs)
    while True:
        newest = {run.folder: checkpoint.newest_iteration(run.folder / "checkpoints") or first for run in candidates}
        last = min(newest.values())
        group = [
            run.folder
            for run in candidates
            if newest[run.folder] == last
            or (
                newest[run.folder] <= last + interval
                and (last == first or checkpoint.exists(run.folder / "checkpoints", last))
            )
        ]
        if len(group) == len(candidates):
            return candidates
        candidates = [run for run in candidates if run.folder not in group]


def _first_iteration(runs: Sequence[SeedRun]) -> int:
    """The iteration at which new runs begin: 0, or that of the checkpoint that `checkpoint.load` names."""
    source = runs[0].config.source
    return int(source.loop["iteration"]) if source else 0


class StartingPoint(NamedTuple):
    """Where runs begin that are trained together."""

    loops: list[LoopState]
    arrays: list[Arrays] | None
    """The arrays of a checkpoint for each run; None for initial weights."""
    resumes: bool
    """Whether the runs go on, from checkpoints of their own."""

    def state(self, runs: Sequence[SeedRun], runner: SeedsRunner) -> Any:
        """The runner's state. Raises `ConfigError` if the arrays do not fit."""
        if self.arrays is None:
            return runner.init([run.config.root.seed for run in runs])
        try:
            return runner.restore(self.arrays)
        except ConfigError as error:
            if self.resumes:
                raise
            load, task = runs[0].config.root.checkpoint.load, runs[0].config.task.name
            raise ConfigError(f"checkpoint.load={load}, for {task}: {error}") from error

    def remove_newer_checkpoints(self, runs: Sequence[SeedRun]) -> None:
        """Remove the checkpoints of the runs that are ahead of this; to be called once the state is there."""
        for run, loop in zip(runs, self.loops, strict=True):
            folder = run.folder / "checkpoints"
            if (checkpoint.newest_iteration(folder) or loop.iteration) > loop.iteration:
                print_status(
                    f"{run.folder} goes back to iteration {loop.iteration}, where the last run of its program is"
                )
            checkpoint.remove_newer_checkpoints(folder, loop.iteration, loop.best_iteration if self.resumes else None)


def starting_point_of(runs: Sequence[SeedRun], newest: Sequence[checkpoint.Checkpoint | None]) -> StartingPoint:
    """The start from the `newest` checkpoints. If a run has none, the start of new runs: initial weights, or the
    checkpoint that `checkpoint.load` names.

    After an interruption, some of several runs may have a checkpoint more than others: all go back to the last one
    that they have in common. Raises `ConfigError` if it is damaged, or if files of rows do not match the checkpoints.
    """
    folders, first, source = [run.folder / "checkpoints" for run in runs], _first_iteration(runs), runs[0].config.source
    iterations = [saved.loop["iteration"] if saved else first for saved in newest]
    common = min(iterations)
    if common == first:
        if source is None:
            return StartingPoint([LoopState() for _ in runs], None, resumes=False)
        steps = source.loop["global_step"]
        # Each run has random numbers of its own seed.
        arrays = [_loaded_arrays(source.arrays, run.config) for run in runs]
        return StartingPoint([LoopState(first, steps, loaded_steps=steps) for _ in runs], arrays, resumes=False)
    checkpoints = [
        saved if saved and k == common else checkpoint.load_iteration(folder, common)
        for saved, k, folder in zip(newest, iterations, folders, strict=True)
    ]
    loops = [LoopState.from_checkpoint(saved.loop) for saved in checkpoints]
    for run, loop, folder in zip(runs, loops, folders, strict=True):
        loop.check_files(run.folder)
        if loop.best_iteration is not None and not checkpoint.exists(folder, loop.best_iteration):
            loop.best_iteration = loop.best_return = None  # a newer one that was the best since was removed
    return StartingPoint(loops, [saved.arrays for saved in checkpoints], resumes=True)


def _loaded_arrays(arrays: Arrays, config: Config) -> Arrays:
    """The `arrays` of another run with which a run begins, with its own seed and bounds of learning rates."""
    own, hp, factor = {"seed": np.array(config.root.seed)}, config.ppo, f"statistics.{LEARNING_RATE_FACTOR}"
    if hp.adaptive_kl is not None and factor in arrays:
        low, high = (bound / hp.learning_rate for bound in (hp.min_learning_rate, hp.max_learning_rate))
        own[factor] = np.clip(arrays[factor], low, high)
    return arrays | own
