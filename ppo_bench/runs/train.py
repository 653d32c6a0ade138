"""The only outer loop, for any runner: it alone handles progress, results, checkpoints, videos and trackers."""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.common.errors import Failed, FailedRuns, Interrupted
from ppo_bench.common.files import is_complete
from ppo_bench.common.progress import ProgressDisplay, say
from ppo_bench.common.stopping import stop_requests
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observed import make_env
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Metrics, Runner
from ppo_bench.runners.seeds import OneSeed, SeedsRunner
from ppo_bench.runs.advice import advice
from ppo_bench.runs.finished import report_finished
from ppo_bench.runs.group import GroupRunner
from ppo_bench.runs.kept import told_to_stop, what_is_kept
from ppo_bench.runs.pauses import Listener, Pauses
from ppo_bench.runs.provenance import provenance
from ppo_bench.runs.record import Record
from ppo_bench.runs.results import ERROR, error_of, own_folder
from ppo_bench.runs.starts import SeedRun, leading, resume, start
from ppo_bench.runs.trackers.tracking import Tracking

ROWS_SECONDS = 0.2
"""Minimum time between two writes of rows, where iterations are shorter: to write the rows of many runs takes longer
than such an iteration. An evaluation may keep the rows of that time waiting."""


def build_runner(config: Config) -> Runner[Any]:
    """The runner of a configuration. Raises `ConfigError` if the environment or the device is not available."""
    return _build(config, config.framework.runner)[0]


def _build(config: Config, runner: Any) -> tuple[Any, list[str], VectorEnv | GraphEnv]:
    """The runner, warnings to print when a training starts, not when it resumes, and the environments."""
    config.framework.begin(len(config.of_each_run()), config.tuning, config.devices_here)
    if config.processes > 1:
        group = GroupRunner(config)
        return group, list(advice(config, group.problem.env)), group.problem.env
    env = make_env(config.backend, config.task)
    try:
        return runner(config.problem(env)), list(advice(config, env)), env
    except BaseException:
        env.close()
        raise


def train(config: Config, started_at: float, on_iteration: Listener | None = None) -> list[Path]:
    """Train every run to the end, from its newest checkpoint if there is one; returns the runs' folders.

    `started_at` is the `time.perf_counter()` of the program's start. What `on_iteration` raises ends the training.
    Raises `Failed` at the end if some runs have failed, and `Interrupted` on the signals of
    `ppo_bench/common/stopping.py`.
    """
    runs = [SeedRun(*each) for each in zip(config.of_each_run(), config.folders, strict=True)]
    finished = [run for run in runs if is_complete(run.folder)]
    if finished:
        now = provenance(config.trained_objects)
        for run in finished:
            report_finished(*run, now)
            _track_finished(config, run.folder)
    failed: dict[Path, SeedRun] = {}
    stopped = False
    while todo := [run for run in runs if run.folder not in failed and not is_complete(run.folder)]:
        if stopped:
            raise Interrupted(f"stopped with {len(todo)} of {len(runs)} runs left; the same command goes on with them")
        if failed:
            say(f"going on with {len(todo)} of {len(runs)} runs")
        # Failed runs come last: they will most likely fail again, and set the others back.
        together = leading([run for run in todo if not error_of(run.folder)] or todo)
        try:
            with _first_iteration_uncollected():
                stopped = _train_runs(config, together, started_at, on_iteration)
        except FailedRuns as error:
            if not config.trains_several:
                raise
            failed |= {together[position].folder: together[position] for position in error.reasons}
            for reason in error.reasons.values():
                say(reason)
        if failed:
            gc.collect()  # the failed program
        started_at = time.perf_counter()
    if failed:
        names = ", ".join(run.config.named for run in failed.values())
        raise Failed(f"{len(failed)} of {len(runs)} runs failed: {names}; {ERROR} in the folder of each says why")
    return [run.folder for run in runs]


def _track_finished(config: Config, folder: Path) -> None:
    """Log a finished run, whole, to the trackers that have not logged it."""
    Tracking({name: each for name, each in config.trackers.items() if not (folder / name).exists()}, folder).finish()


@contextmanager
def _first_iteration_uncollected() -> Iterator[None]:
    """Disables garbage collection until the first iteration has finished, and then for the objects made until then.

    The objects of imports, tracing and compilation stay alive; repeated scans of them cost time and free nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def _enable_garbage_collection() -> None:
    """Enable garbage collection after the first iteration, for objects that are made from now on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _train_runs(config: Config, runs: Sequence[SeedRun], started_at: float, on_iteration: Listener | None) -> bool:
    """Train runs together to the end; whether a stop was requested in their last iteration.

    Trains nothing if other processes or damaged checkpoints have meanwhile left other runs to train together.
    """
    pauses = Pauses([run.config for run in runs], on_iteration)
    if config.trains_several:
        own = [run.config.own for run in runs]
        runner, warnings, env = _build(config, functools.partial(config.framework.seeds_runner, own=own))
    else:
        built, warnings, env = _build(config, config.framework.runner)
        runner = OneSeed(built)
    try:
        # Before anything is written to disk, because a checkpoint of another network raises here.
        fresh = all(checkpoint.newest_iteration(run.folder / "checkpoints") is None for run in runs)
        begun = start(runs, runner) if fresh else None
        with ExitStack() as stack:
            for position, run in enumerate(runs):
                stack.enter_context(own_folder(run.folder, position))
            finished = [run for run in runs if is_complete(run.folder)]  # by another process, since they were chosen
            for run in finished:
                report_finished(*run, provenance(config.trained_objects))
            newest = [checkpoint.load_newest(run.folder / "checkpoints", say) for run in runs]
            if finished or len(leading(runs)) < len(runs):
                return False
            resumed = resume(runs, newest, runner)
            del newest  # frees the memory of checkpoints
            for line in warnings if resumed is None else ():
                say(line)
            loops, state = resumed or begun or start(runs, runner)
            made_by = provenance(config.trained_objects) | {"execution": dict(runner.execution)}
            actions = config.network_for(env).actions
            action_size = 0 if actions.choices else actions.lanes
            records = [
                Record(run.config, run.folder, loop, made_by, resumed is None, len(runs), action_size)
                for run, loop in zip(runs, loops, strict=True)
            ]
            for record in records:
                stack.enter_context(record.tracked())
            say(_where(records[0], runner.execution, config.framework.compiles))
            return _loop(config, runner, state, records, pauses, setup_seconds=time.perf_counter() - started_at)
    finally:
        try:
            pauses.close()
        finally:
            runner.close()


def _loop(
    config: Config,
    runner: SeedsRunner[Any],
    state: Any,
    records: Sequence[Record],
    pauses: Pauses,
    setup_seconds: float,
) -> bool:
    """Train from the state's iteration to the last one; whether a stop was requested too late to prevent its end."""
    first, at_once, every = records[0], config.framework.iterations_per_call, config.root.checkpoint.every_iterations
    loop, last, batch_size = first.loop, config.num_iterations, config.ppo.batch_size
    loop_started = time.perf_counter() - pauses.seconds
    progress = ProgressDisplay(config.task.name, _title(records), last * batch_size, len(records))
    with stop_requests() as stop, told_to_stop(stop, records), _written(records) as write, progress as display:
        for record in records:
            record.prune()  # a kill may have come before it
        while loop.iteration < last:
            if loop.iteration % at_once == 0:  # else it has been running since the previous iteration ended
                started = time.perf_counter()
            state, measured = runner.step(state)
            now = time.perf_counter()
            _enable_garbage_collection()
            sps, started = batch_size / (now - started), now
            _require_finite([metrics for metrics, _ in measured], records)
            seconds = now - loop_started - pauses.seconds
            evaluated = pauses.evaluate(runner, state, loop.iteration + 1, stop)
            together = zip(records, measured, evaluated or pauses.columns, strict=True)
            for record, given, columns in together:
                pauses.note(record, record.add(*given, seconds, sps, columns))
            write(now)
            display.update(loop.global_step, _recent_mean(records), sps * len(records))
            # An iteration whose evaluation was stopped has no checkpoint, so that the resumed run makes it again.
            saves = evaluated is not None and (loop.iteration % every == 0 or loop.iteration == last)
            if saves:
                _save(runner, state, records, pauses, stop, cuts=loop.iteration < last)
                if loop.iteration < last:
                    state = runner.restart(state, loop.iteration)
            ends_block = loop.iteration % at_once == 0 or loop.iteration == last
            if ends_block:
                pauses.tell()
            if stop and ends_block and not (saves and loop.iteration == last):
                if not saves:
                    for record, arrays in zip(records, runner.export(state), strict=True):
                        record.snapshot(arrays)
                raise Interrupted(what_is_kept(first.folder, loop.iteration))
    for record in records:
        record.finish(setup_seconds)
    return bool(stop)


@contextmanager
def _written(records: Sequence[Record]) -> Iterator[Callable[[float], None]]:
    """A function of the time that writes the rows that wait, if it is time to; in the end all are, whatever happens."""
    last = time.perf_counter()

    def write(now: float) -> None:
        nonlocal last
        if now - last >= ROWS_SECONDS:
            last = now
            for record in records:
                record.write()

    try:
        yield write
    except BaseException:
        for record in records:
            with suppress(OSError):  # what has failed comes first
                record.write()
        raise
    for record in records:
        record.write()


def _save(
    runner: SeedsRunner[Any], state: Any, records: Sequence[Record], pauses: Pauses, stop: Sequence[int], cuts: bool
) -> None:
    """Write a checkpoint of every run; `cuts` says whether the environments restart after it."""
    if cuts:
        for record, in_progress in zip(records, runner.in_progress(state), strict=True):
            record.loop.cut(in_progress)
    saved = [record.save(arrays) for record, arrays in zip(records, runner.export(state), strict=True)]
    for record in records:
        record.prune()  # only now that every run has this checkpoint: a resumption needs one that all have
    pauses.film(records, saved, stop)


def _where(record: Record, execution: Mapping[str, object], compiles: bool) -> str:
    """The run's folder, and the device and threads that it trains on, as one line."""
    count = execution.get("threads", 0)
    threads = f", {count} thread{'s' if count != 1 else ''}" if count else ""
    first = "; the first iteration compiles" if compiles else ""
    device, devices = str(execution.get("gpu", execution["device"])), execution.get("devices", 1)
    where = device if devices == 1 else f"{devices} x {device.partition(':')[0]}"
    return f"{record.folder}, on {where}{threads}{first}"


def _recent_mean(records: Sequence[Record]) -> float | None:
    """Mean over the runs of their recent returns; None before an episode of each has ended."""
    means = [record.loop.recent_mean for record in records]
    return sum(means) / len(means) if None not in means else None  # type: ignore[arg-type]


def _title(records: Sequence[Record]) -> str:
    config, seeds = records[0].config, [str(record.config.root.seed) for record in records]
    shown = f"{len(records)} runs" if config.own else f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
    return f"{config.task.name} {config.backend.name} {config.framework.name} {shown}"


def _require_finite(measured: Sequence[Metrics], records: Sequence[Record]) -> None:
    """Raise `FailedRuns` if losses of some runs are not finite in the iteration that is not yet recorded."""
    reasons, declared = {}, metrics_of(records[0].config.algorithm, records[0].config.network)
    defined = {metric.name for metric in declared if metric.always_finite}
    for position, (metrics, record) in enumerate(zip(measured, records, strict=True)):
        wrong = [name for name, value in metrics.items() if name in defined and not math.isfinite(value)]
        if wrong:
            run = f" of {record.config.named}" if record.loop.together > 1 else ""
            reasons[position] = (
                f"{wrong[0]}{run} is {metrics[wrong[0]]} in iteration {record.loop.iteration + 1}: learning diverged; "
                "try a smaller ppo.learning_rate"
            )
    if reasons:
        raise FailedRuns(reasons)
