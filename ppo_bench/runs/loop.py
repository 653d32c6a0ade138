"""The only outer loop, for any runner: it alone handles progress, results, checkpoints, videos and trackers."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.common.errors import FailedRuns, RunInterrupted
from ppo_bench.common.progress import ProgressDisplay
from ppo_bench.common.stopping import stop_requests
from ppo_bench.configuration.config import Config
from ppo_bench.runners.base import Metrics
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.callbacks import Callbacks
from ppo_bench.runs.distributed import all_gather_object
from ppo_bench.runs.interruption import describe_interruption, explain_failures
from ppo_bench.runs.run_writer import RunWriter

ROWS_SECONDS = 0.2
"""Minimum time between two writes of rows, where iterations are shorter: to write the rows of many runs takes longer
than such an iteration. An evaluation may keep the rows of that time waiting."""


def run_iterations(
    config: Config,
    runner: SeedsRunner[Any],
    state: Any,
    iteration: int,
    writers: Sequence[RunWriter],
    callbacks: Callbacks,
    setup_seconds: float = 0.0,
) -> bool:
    """Train from `iteration`, that of the state, to the last one; whether a stop was requested too late for it.

    All ranks of a training go through the same iterations; ranks other than 0 have no `writers`.
    """
    at_once, every = config.framework.iterations_per_call, config.root.checkpoint.every_iterations
    last, batch_size, stopped = config.num_iterations, config.ppo.batch_size, False
    loop_started = time.perf_counter() - callbacks.seconds
    shown = _display(config, writers)
    with stop_requests() as stop, explain_failures(stop, writers), _writing_rows(writers) as write, shown as show:
        for writer in writers:
            writer.prune()  # a kill may have come before it
        while iteration < last:
            if iteration % at_once == 0:  # else it has been running since the previous iteration ended
                started = time.perf_counter()
            state, measured = runner.iterate(state)
            iteration += 1
            now = time.perf_counter()
            _enable_garbage_collection()
            sps, started = batch_size / (now - started), now
            _require_finite([metrics for metrics, _ in measured], callbacks.configs, iteration)
            seconds = now - loop_started - callbacks.seconds
            evaluated = callbacks.evaluate(runner, state, iteration, stop)
            for writer, given, columns in zip(writers, measured, evaluated or callbacks.columns, strict=False):
                callbacks.queue_row(writer, writer.add(*given, seconds, sps, columns))
            write(now)
            show(sps)
            # An iteration whose evaluation was stopped has no checkpoint, so that the resumed run makes it again.
            saves = evaluated is not None and (iteration % every == 0 or iteration == last)
            if saves:
                save(runner, state, writers, callbacks, stop, cuts=iteration < last)
                if iteration < last:
                    state = runner.restart_envs(state, iteration)
            ends_block = iteration % at_once == 0 or iteration == last
            if ends_block:
                callbacks.notify()
                stopped = any(all_gather_object(callbacks.process_group, bool(stop)))
            if stopped and ends_block and not (saves and iteration == last):
                if not saves:
                    for writer, arrays in zip(writers, runner.export(state), strict=False):
                        writer.snapshot(arrays)
                if writers:
                    raise RunInterrupted(describe_interruption(writers[0].folder, iteration))
                return True
    for writer in writers:
        writer.finish(setup_seconds)
    return stopped or bool(stop)


def _enable_garbage_collection() -> None:
    """Enable garbage collection after the first iteration, for objects that are made from now on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def _writing_rows(writers: Sequence[RunWriter]) -> Iterator[Callable[[float], None]]:
    """A function of the time that writes the rows that wait, if it is time to; in the end all are, whatever happens."""
    last = time.perf_counter()

    def write(now: float) -> None:
        nonlocal last
        if now - last >= ROWS_SECONDS:
            last = now
            for writer in writers:
                writer.write()

    try:
        yield write
    except BaseException:
        for writer in writers:
            with suppress(OSError):  # what has failed comes first
                writer.write()
        raise
    for writer in writers:
        writer.write()


def save(
    runner: SeedsRunner[Any],
    state: Any,
    writers: Sequence[RunWriter],
    callbacks: Callbacks,
    stop: Sequence[int],
    cuts: bool,
) -> None:
    """Write a checkpoint of every run; `cuts` says whether the environments restart after it."""
    if cuts:
        for writer, episode_lengths in zip(writers, runner.episode_lengths(state), strict=False):
            writer.loop.count_cut_episodes(episode_lengths)
    saved = [writer.save(arrays) for writer, arrays in zip(writers, runner.export(state), strict=False)]
    for writer in writers:
        writer.prune()  # only now that every run has this checkpoint: a resumption needs one that all have
    callbacks.record_videos(writers, saved, stop)


@contextmanager
def _display(config: Config, writers: Sequence[RunWriter]) -> Iterator[Callable[[float], None]]:
    """A function of the environment steps per second of each run that shows the progress; nothing without `writers`."""
    if not writers:
        yield lambda sps: None
        return
    total_steps = config.num_iterations * config.ppo.batch_size
    with ProgressDisplay(config.task.name, _title(writers), total_steps, len(writers)) as display:
        yield lambda sps: display.update(writers[0].loop.global_step, _recent_mean(writers), sps * len(writers))


def _recent_mean(writers: Sequence[RunWriter]) -> float | None:
    """Mean over the runs of their recent returns; None before an episode of each has ended."""
    means = [writer.loop.recent_mean for writer in writers]
    return sum(means) / len(means) if None not in means else None  # type: ignore[arg-type]


def _title(writers: Sequence[RunWriter]) -> str:
    config, seeds = writers[0].config, [str(writer.config.root.seed) for writer in writers]
    shown = f"{len(writers)} runs" if config.own else f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
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
