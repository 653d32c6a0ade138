"""Where a training of several runs begins or goes on, from the checkpoints in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config
from ppo_bench.runners import checkpoint
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.loop_state import LoopState


class SeedRun(NamedTuple):
    """One of the runs that are trained together."""

    config: Config
    folder: Path


def leading(runs: Sequence[SeedRun]) -> list[SeedRun]:
    """The runs that are to go on together first: without the last ones, as long as others are too far ahead of those.

    Runs go on together with the last of them if they have its newest checkpoint, or it has none, and if none is ahead
    of it by more than one checkpoint.
    """
    first, every, left = _first(runs), runs[0].config.root.checkpoint.every_iterations, list(runs)
    while True:
        newest = {run.folder: checkpoint.newest_iteration(run.folder / "checkpoints") or first for run in left}
        last = min(newest.values())
        together = [
            run.folder
            for run in left
            if newest[run.folder] == last
            or (
                newest[run.folder] <= last + every
                and (last == first or checkpoint.exists(run.folder / "checkpoints", last))
            )
        ]
        if len(together) == len(left):
            return left
        left = [run for run in left if run.folder not in together]


def _first(runs: Sequence[SeedRun]) -> int:
    """The iteration at which new runs begin: 0, or that of the checkpoint that `checkpoint.load` names."""
    source = runs[0].config.source
    return int(source.loop["iteration"]) if source else 0


def start(runs: Sequence[SeedRun], runner: SeedsRunner[Any]) -> tuple[list[LoopState], Any]:
    """Counters and state of new runs: initial weights, or the checkpoint that `checkpoint.load` names."""
    seeds, source = [run.config.root.seed for run in runs], runs[0].config.source
    if source is None:
        return [LoopState() for _ in runs], runner.init(seeds)
    iteration, global_step = source.loop["iteration"], source.loop["global_step"]
    loops = [LoopState(iteration, global_step, loaded_steps=global_step) for _ in runs]
    try:  # each run has random numbers of its own seed
        return loops, runner.restore([source.arrays | {"seed": np.array(seed)} for seed in seeds])
    except ConfigError as error:
        load, task = runs[0].config.root.checkpoint.load, runs[0].config.task.name
        raise ConfigError(f"checkpoint.load={load}, for {task}: {error}") from error


def resume(
    runs: Sequence[SeedRun], newest: Sequence[checkpoint.Checkpoint | None], runner: SeedsRunner[Any]
) -> tuple[list[LoopState], Any] | None:
    """Counters and state of the `newest` checkpoints; None if the runs are to start from the beginning.

    After an interruption, some of several runs may have a checkpoint more than others: all go back to the last one
    that they have in common. Raises `ConfigError` if it is damaged, or if files of rows do not match the checkpoints.
    """
    folders, first = [run.folder / "checkpoints" for run in runs], _first(runs)
    iterations = [saved.loop["iteration"] if saved else first for saved in newest]
    common = min(iterations)
    back = [run.folder for run, iteration in zip(runs, iterations, strict=True) if iteration > common]
    if common == first:
        _say_of_going_back(back, first)
        for folder in folders:
            checkpoint.go_back(folder, first, None)
        return None
    whole = [
        saved if saved and k == common else _of_iteration(folder, common)
        for saved, k, folder in zip(newest, iterations, folders, strict=True)
    ]
    loops, state = [LoopState.of(saved.loop) for saved in whole], runner.restore([saved.arrays for saved in whole])
    for run, loop in zip(runs, loops, strict=True):  # all of them, before any file is changed
        loop.check_files(run.folder)
    _say_of_going_back(back, common)
    for folder, loop in zip(folders, loops, strict=True):
        checkpoint.go_back(folder, common, loop.best_iteration)
    return loops, state


def _say_of_going_back(folders: Sequence[Path], iteration: int) -> None:
    for folder in folders:
        say(f"{folder} goes back to iteration {iteration}, where the last run of its program is")


def _of_iteration(folder: Path, iteration: int) -> checkpoint.Checkpoint:
    try:
        return checkpoint.load_iteration(folder, iteration)
    except ConfigError as error:
        raise ConfigError(
            f"{folder} has no whole checkpoint of iteration {iteration}, to which another run has to go back: train "
            "the runs by themselves (num_seeds=1, without a grid), or start all afresh by rerun=true"
        ) from error
