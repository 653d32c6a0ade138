"""Training of the runs of a configuration, from the checkpoints in their folders to the end."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ppo_bench.common.errors import ConfigError, FailedRuns, RunError, RunInterrupted
from ppo_bench.common.files import is_complete, read_json
from ppo_bench.common.progress import print_status
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.shards import ProcessGroup
from ppo_bench.runners import checkpoint
from ppo_bench.runners.seeds import OneSeed
from ppo_bench.runs.advice import advice
from ppo_bench.runs.callbacks import Callbacks, Listener
from ppo_bench.runs.distributed import DistributedRunner, all_gather_object, build_runner, require_world_size
from ppo_bench.runs.loop import describe_newest_checkpoint, run_iterations
from ppo_bench.runs.provenance import provenance
from ppo_bench.runs.results import ERROR_FILE, error_of, lock_run_folder
from ppo_bench.runs.resume import SeedRun, StartingPoint, next_group, starting_point_of
from ppo_bench.runs.run_writer import RunWriter, warn_of_differences
from ppo_bench.runs.trackers.tracking import Trackers, lacks_result


def train(config: Config, started_at: float, on_iteration: Listener | None = None) -> list[Path]:
    """Train every run to the end, from its newest checkpoint if there is one; returns the runs' folders.

    `started_at` is the `time.perf_counter()` of the program's start. What `on_iteration` raises ends the training.
    Raises `ConfigError` if a launcher has started another number of processes than `config` asks for, `RunError` at the
    end if some runs have failed, and `RunInterrupted` on the signals of `ppo_bench/common/stopping.py`.
    """
    require_world_size(config)
    folders = config.folders
    # Absolute, since an environment may change the current folder.
    runs = [SeedRun(one, folder.absolute()) for one, folder in zip(config.of_each_run(), folders, strict=True)]
    if config.processes > 1 and read_rank_info():
        _train_runs(config, runs, started_at, on_iteration)
        return folders if config.rank == 0 else []
    if config.processes > 1 and on_iteration:
        raise ConfigError(
            f"on_iteration: with devices={config.root.devices} the training runs in processes of its own; start the "
            f"script by torchrun --nproc_per_node={config.processes}, or leave it out"
        )
    _report(config, [run for run in runs if is_complete(run.folder)])
    failed: dict[Path, SeedRun] = {}
    stopped = False
    while todo := [run for run in runs if run.folder not in failed and not is_complete(run.folder)]:
        if stopped:
            raise RunInterrupted(
                f"stopped with {len(todo)} of {len(runs)} runs left; the same command goes on with them"
            )
        if failed:
            print_status(f"going on with {len(todo)} of {len(runs)} runs")
        # Failed runs come last: they will most likely fail again, and set the others back.
        group = next_group([run for run in todo if not error_of(run.folder)] or todo)
        try:
            if config.processes > 1:
                stopped = _train_on_ranks(config, group, started_at)
            else:
                stopped = _train_runs(config, group, started_at, on_iteration)
        except FailedRuns as error:
            if not config.trains_several:
                raise
            failed |= {group[position].folder: group[position] for position in error.reasons}
            for reason in error.reasons.values():
                print_status(reason)
        if failed:
            gc.collect()  # the failed program
        started_at = time.perf_counter()
    if failed:
        names = ", ".join(run.config.named for run in failed.values())
        raise RunError(
            f"{len(failed)} of {len(runs)} runs failed: {names}; {ERROR_FILE} in the folder of each says why"
        )
    return folders


def _report(config: Config, finished: Sequence[SeedRun]) -> None:
    """Say what has come of finished runs, and log each, whole, to the trackers that have not logged it."""
    now = provenance(config.configured_objects) if finished else {}
    for run in finished:
        mean = read_json(run.folder / "result.json").get("final_return_mean")
        return_text = "none" if mean is None else f"{mean:.2f}"
        print_status(f"{run.folder} is done: final_return_mean {return_text}; rerun=true trains again in a new folder")
        try:
            warn_of_differences(run.folder, now)
            new = {name: each for name, each in config.trackers.items() if lacks_result(run.folder, name)}
            Trackers(new, run.folder).finish()
        except ConfigError as error:  # it is complete all the same
            print_status(f"warning: {error}")


@contextmanager
def _gc_disabled_in_first_iteration() -> Iterator[None]:
    """Disables garbage collection until the first iteration has finished, and then for the objects made until then.

    The objects of imports, tracing and compilation stay alive; repeated scans of them cost time and free nothing.
    """
    has_frozen_objects = gc.get_freeze_count() > 0
    gc.collect()  # runners of earlier trainings of this process
    gc.disable()
    try:
        yield
    finally:
        if not has_frozen_objects:  # those of the caller stay frozen
            gc.unfreeze()
        gc.enable()


def _train_on_ranks(config: Config, runs: Sequence[SeedRun], started_at: float) -> bool:
    """See `_train_runs`, in a process of this machine for each device."""
    from ppo_bench.runs.ranks import RankFailed, run_ranks

    try:
        return bool(run_ranks(config.processes, _train_runs, config, runs, started_at, None))
    except RankFailed as error:
        raise RunError(f"{error}; {describe_newest_checkpoint(runs[0].folder)}") from error


@_gc_disabled_in_first_iteration()
def _train_runs(config: Config, runs: Sequence[SeedRun], started_at: float, on_iteration: Listener | None) -> bool:
    """Train runs together to the end; whether a stop was requested in their last iteration.

    Trains nothing if other processes have meanwhile left other runs to train together. Of the ranks of a training, each
    calls this, and rank 0 alone uses the runs' folders.
    """
    process_group: ProcessGroup | None = None
    if config.trains_several:
        grid_values = [run.config.grid_values for run in runs]
        runner, env = build_runner(config, functools.partial(config.framework.seeds_runner, grid_values=grid_values))
    else:
        built, env = build_runner(config, config.framework.runner)
        runner = OneSeed(built)
        process_group = built.process_group if isinstance(built, DistributedRunner) else None
    callbacks = Callbacks([run.config for run in runs], on_iteration, process_group)
    try:
        with ExitStack() as stack:
            starting_point = None
            if config.rank == 0:
                for position, run in enumerate(runs):
                    stack.enter_context(lock_run_folder(run.folder, position))
                starting_point = _find_starting_point(config, runs)
            starting_point = all_gather_object(process_group, starting_point)[0]
            if starting_point is None:
                return False
            state = starting_point.state(runs, runner)
            if config.rank > 0:
                with suppress(FailedRuns):  # of losses, which all ranks have: rank 0 says so
                    run_iterations(config, runner, state, starting_point.loops[0].iteration, [], callbacks)
                return False
            starting_point.remove_newer_checkpoints(runs)
            for line in () if starting_point.resumes else advice(config, env):
                print_status(line)
            made_by = provenance(config.configured_objects) | {"execution": dict(runner.execution)}
            actions = config.network_for(env).actions
            action_size = 0 if actions.choices else actions.action_dim
            writers = [
                RunWriter(run.config, run.folder, loop, made_by, not starting_point.resumes, len(runs), action_size)
                for run, loop in zip(runs, starting_point.loops, strict=True)
            ]
            del starting_point  # frees the memory of the run's own checkpoints
            for writer in writers:
                stack.enter_context(writer.open_trackers())
            print_status(_describe_device(writers[0], runner.execution, config.framework.compiles))
            setup_seconds = time.perf_counter() - started_at
            return run_iterations(config, runner, state, writers[0].loop.iteration, writers, callbacks, setup_seconds)
    finally:
        try:
            callbacks.close()
        finally:
            runner.close()


def _find_starting_point(config: Config, runs: Sequence[SeedRun]) -> StartingPoint | None:
    """Where runs begin, whose folders are this process's; None if they are not to be trained together, after all."""
    finished = [run for run in runs if is_complete(run.folder)]  # perhaps since they were chosen
    _report(config, finished)
    newest = [checkpoint.load_newest(run.folder / "checkpoints") for run in runs]
    return None if finished or len(next_group(runs)) < len(runs) else starting_point_of(runs, newest)


def _describe_device(writer: RunWriter, execution: Mapping[str, object], compiles: bool) -> str:
    """The run's folder, and the device and threads that it trains on, as one line."""
    count = execution.get("threads", 0)
    threads = f", {count} thread{'s' if count != 1 else ''}" if count else ""
    first = "; the first iteration compiles" if compiles else ""
    device, devices = str(execution.get("gpu", execution["device"])), execution.get("devices", 1)
    where = device if devices == 1 else f"{devices} x {device.partition(':')[0]}"
    return f"{writer.folder}, on {where}{threads}{first}"
