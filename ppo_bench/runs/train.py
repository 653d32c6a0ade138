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
from ppo_bench.common.errors import ConfigError, Failed, FailedRuns, Interrupted
from ppo_bench.common.files import is_complete
from ppo_bench.common.launched import launched
from ppo_bench.common.progress import ProgressDisplay, say
from ppo_bench.common.stopping import stop_requests
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observed import make_env
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Metrics, Peers, Runner
from ppo_bench.runners.seeds import OneSeed, SeedsRunner
from ppo_bench.runs.advice import advice
from ppo_bench.runs.finished import report_finished
from ppo_bench.runs.group import SharedRunner, shared
from ppo_bench.runs.kept import told_to_stop, what_is_kept, what_stands
from ppo_bench.runs.pauses import Listener, Pauses
from ppo_bench.runs.provenance import provenance
from ppo_bench.runs.record import Record
from ppo_bench.runs.results import ERROR, error_of, own_folder
from ppo_bench.runs.starts import SeedRun, Start, leading, start_of
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
        shares = SharedRunner(config)
        return shares, list(advice(config, shares.env)), shares.env
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
    if config.processes > 1 and launched():
        _train_runs(config, runs, started_at, on_iteration)
        return config.folders if config.rank == 0 else []
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
            raise Interrupted(f"stopped with {len(todo)} of {len(runs)} runs left; the same command goes on with them")
        if failed:
            say(f"going on with {len(todo)} of {len(runs)} runs")
        # Failed runs come last: they will most likely fail again, and set the others back.
        together = leading([run for run in todo if not error_of(run.folder)] or todo)
        try:
            if config.processes > 1:
                stopped = _train_on_ranks(config, together, started_at)
            else:
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


def _report(config: Config, finished: Sequence[SeedRun]) -> None:
    """Say what has come of finished runs, and log each, whole, to the trackers that have not logged it."""
    now = provenance(config.trained_objects) if finished else {}
    for run in finished:
        report_finished(*run, now)
        new = {name: each for name, each in config.trackers.items() if not (run.folder / name).exists()}
        Tracking(new, run.folder).finish()


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


def _train_on_ranks(config: Config, runs: Sequence[SeedRun], started_at: float) -> bool:
    """See `_train_runs`, in a process of this machine for each device."""
    from ppo_bench.runs.ranks import RankFailed, run_ranks

    try:
        return bool(run_ranks(config.processes, _train_runs, config, runs, started_at, None))
    except RankFailed as error:
        raise Failed(f"{error}; {what_stands(runs[0].folder)}") from error


@_first_iteration_uncollected()
def _train_runs(config: Config, runs: Sequence[SeedRun], started_at: float, on_iteration: Listener | None) -> bool:
    """Train runs together to the end; whether a stop was requested in their last iteration.

    Trains nothing if other processes or damaged checkpoints have meanwhile left other runs to train together. Of the
    ranks of a training, each calls this, and rank 0 alone uses the runs' folders.
    """
    if config.trains_several:
        own = [run.config.own for run in runs]
        runner, warnings, env = _build(config, functools.partial(config.framework.seeds_runner, own=own))
    else:
        built, warnings, env = _build(config, config.framework.runner)
        runner = OneSeed(built)
        peers = built.peers if isinstance(built, SharedRunner) else None
    pauses = Pauses([run.config for run in runs], on_iteration, peers)
    try:
        with ExitStack() as stack:
            begins = None
            if config.rank == 0:
                for position, run in enumerate(runs):
                    stack.enter_context(own_folder(run.folder, position))
                begins = _start(config, runs)
            begins = shared(peers, begins)[0]
            if begins is None:
                return False
            state = begins.state(runs, runner)
            if config.rank > 0:
                with suppress(FailedRuns):  # rank 0 says so
                    _loop(config, runner, state, begins.loops[0].iteration, [], pauses, peers, 0.0)
                return False
            begins.go_back(runs)
            for line in () if begins.resumes else warnings:
                say(line)
            made_by = provenance(config.trained_objects) | {"execution": dict(runner.execution)}
            actions = config.network_for(env).actions
            action_size = 0 if actions.choices else actions.lanes
            records = [
                Record(run.config, run.folder, loop, made_by, not begins.resumes, len(runs), action_size)
                for run, loop in zip(runs, begins.loops, strict=True)
            ]
            del begins  # frees the memory of checkpoints
            for record in records:
                stack.enter_context(record.tracked())
            say(_where(records[0], runner.execution, config.framework.compiles))
            setup_seconds = time.perf_counter() - started_at
            return _loop(config, runner, state, records[0].loop.iteration, records, pauses, peers, setup_seconds)
    finally:
        try:
            pauses.close()
        finally:
            runner.close()


def _start(config: Config, runs: Sequence[SeedRun]) -> Start | None:
    """Where runs begin, whose folders are this process's; None if they are not to be trained together, after all."""
    finished = [run for run in runs if is_complete(run.folder)]  # perhaps since they were chosen
    _report(config, finished)
    newest = [checkpoint.load_newest(run.folder / "checkpoints", say) for run in runs]
    return None if finished or len(leading(runs)) < len(runs) else start_of(runs, newest)


def _loop(
    config: Config,
    runner: SeedsRunner[Any],
    state: Any,
    iteration: int,
    records: Sequence[Record],
    pauses: Pauses,
    peers: Peers | None,
    setup_seconds: float,
) -> bool:
    """Train from `iteration`, that of the state, to the last one; whether a stop was requested too late for it.

    All ranks of a training go through the same iterations; ranks other than 0 have no `records`.
    """
    at_once, every = config.framework.iterations_per_call, config.root.checkpoint.every_iterations
    last, batch_size, stopped = config.num_iterations, config.ppo.batch_size, False
    loop_started = time.perf_counter() - pauses.seconds
    shown = _display(config, records)
    with stop_requests() as stop, told_to_stop(stop, records), _written(records) as write, shown as show:
        for record in records:
            record.prune()  # a kill may have come before it
        while iteration < last:
            if iteration % at_once == 0:  # else it has been running since the previous iteration ended
                started = time.perf_counter()
            state, measured = runner.step(state)
            iteration += 1
            now = time.perf_counter()
            _enable_garbage_collection()
            sps, started = batch_size / (now - started), now
            _require_finite([metrics for metrics, _ in measured], pauses.configs, iteration)
            seconds = now - loop_started - pauses.seconds
            evaluated = pauses.evaluate(runner, state, iteration, stop)
            for record, given, columns in zip(records, measured, evaluated or pauses.columns, strict=False):
                pauses.note(record, record.add(*given, seconds, sps, columns))
            write(now)
            show(sps)
            # An iteration whose evaluation was stopped has no checkpoint, so that the resumed run makes it again.
            saves = evaluated is not None and (iteration % every == 0 or iteration == last)
            if saves:
                _save(runner, state, records, pauses, stop, cuts=iteration < last)
                if iteration < last:
                    state = runner.restart(state, iteration)
            ends_block = iteration % at_once == 0 or iteration == last
            if ends_block:
                pauses.tell()
                stopped = any(shared(peers, bool(stop)))
            if stopped and ends_block and not (saves and iteration == last):
                if not saves:
                    for record, arrays in zip(records, runner.export(state), strict=False):
                        record.snapshot(arrays)
                if records:
                    raise Interrupted(what_is_kept(records[0].folder, iteration))
                return True
    for record in records:
        record.finish(setup_seconds)
    return stopped or bool(stop)


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
        for record, in_progress in zip(records, runner.in_progress(state), strict=False):
            record.loop.cut(in_progress)
    saved = [record.save(arrays) for record, arrays in zip(records, runner.export(state), strict=False)]
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


@contextmanager
def _display(config: Config, records: Sequence[Record]) -> Iterator[Callable[[float], None]]:
    """A function of the environment steps per second of each run that shows the progress; nothing without `records`."""
    if not records:
        yield lambda sps: None
        return
    total_steps = config.num_iterations * config.ppo.batch_size
    with ProgressDisplay(config.task.name, _title(records), total_steps, len(records)) as display:
        yield lambda sps: display.update(records[0].loop.global_step, _recent_mean(records), sps * len(records))


def _recent_mean(records: Sequence[Record]) -> float | None:
    """Mean over the runs of their recent returns; None before an episode of each has ended."""
    means = [record.loop.recent_mean for record in records]
    return sum(means) / len(means) if None not in means else None  # type: ignore[arg-type]


def _title(records: Sequence[Record]) -> str:
    config, seeds = records[0].config, [str(record.config.root.seed) for record in records]
    shown = f"{len(records)} runs" if config.own else f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
    return f"{config.task.name} {config.backend.name} {config.framework.name} {shown}"


def _require_finite(measured: Sequence[Metrics], configs: Sequence[Config], iteration: int) -> None:
    """Raise `FailedRuns` if losses of some runs are not finite in this iteration."""
    reasons, declared = {}, metrics_of(configs[0].algorithm, configs[0].network)
    defined = {metric.name for metric in declared if metric.always_finite}
    for position, (metrics, config) in enumerate(zip(measured, configs, strict=True)):
        wrong = [name for name, value in metrics.items() if name in defined and not math.isfinite(value)]
        if wrong:
            run = f" of {config.named}" if len(configs) > 1 else ""
            reasons[position] = (
                f"{wrong[0]}{run} is {metrics[wrong[0]]} in iteration {iteration}: learning diverged; "
                "try a smaller ppo.learning_rate"
            )
    if reasons:
        raise FailedRuns(reasons)
