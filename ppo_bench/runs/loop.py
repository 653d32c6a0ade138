"""The only outer loop, for any runner: it alone handles progress, results, checkpoints, videos and trackers."""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.errors import FailedRuns, RunError, RunInterrupted
from ppo_bench.common.progress import ProgressDisplay
from ppo_bench.common.stopping import stop_requests
from ppo_bench.configuration.config import Config
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Metrics
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.callbacks import Callbacks
from ppo_bench.runs.distributed import all_gather_object
from ppo_bench.runs.run_writer import RunWriter

MIN_WRITE_INTERVAL_SECONDS = 0.2
"""Minimum time between two writes of rows. Iterations can be shorter, and writing the rows of many runs takes longer.
During an evaluation the rows wait too."""

LONG_ITERATION_SECONDS = 0.1
"""Duration from which only one iteration is enqueued behind another: a run that is stopped ends after them."""


def run_iterations(
    config: Config,
    runner: SeedsRunner,
    state: Any,
    iteration: int,
    writers: Sequence[RunWriter],
    callbacks: Callbacks,
    setup_seconds: float = 0.0,
) -> bool:
    """Train from `iteration`, that of the state, to the last one; whether a stop was requested too late for it.

    All ranks of a training go through the same iterations; ranks other than 0 have no `writers`.
    """
    # A program may compute the next iterations while the host records this one, unless others wait for the host.
    goes_ahead = config.framework.library == "jax" and config.backend.in_graph and not callbacks.wait_for_host
    checkpoint_interval, until, ahead = config.root.checkpoint.every_iterations, 0, 2
    last, batch_size, stopped = config.num_iterations, config.ppo.batch_size, False
    loop_started = time.perf_counter() - callbacks.seconds
    last_write = loop_started
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        stack.enter_context(_explain_failures(stop, writers))
        for writer in writers:
            stack.push(functools.partial(_write_rows, writer))  # also if the loop ends by an exception
            writer.prune()  # a kill may have come before it
        show_speed = stack.enter_context(_progress_display(config, writers))
        while iteration < last:
            if iteration >= until:  # else it has been running since the previous iteration ended
                started = time.perf_counter()
            if goes_ahead:
                until = max(until, min(next_export(config, iteration), iteration + ahead))
            state, reports = runner.iterate(state, until)
            iteration += 1
            now = time.perf_counter()
            _enable_garbage_collection()
            ahead = 8 if now - started < LONG_ITERATION_SECONDS else 2  # JAX blocks a caller that enqueues more than 32
            sps, started = batch_size / (now - started), now
            _require_finite(config, [metrics for metrics, _ in reports], iteration)
            seconds = now - loop_started - callbacks.seconds
            evaluation = callbacks.evaluate(runner, state, iteration, stop)
            all_columns = evaluation or callbacks.columns
            rows = [
                (writer, writer.add(metrics, episodes, seconds, sps, columns))
                for writer, (metrics, episodes), columns in zip(writers, reports, all_columns, strict=False)
            ]
            if now - last_write >= MIN_WRITE_INTERVAL_SECONDS:
                last_write = now
                for writer in writers:
                    writer.write()
            show_speed(sps)
            # An iteration whose evaluation was stopped has no checkpoint, so that the resumed run makes it again.
            is_due = iteration % checkpoint_interval == 0 or iteration == last
            has_checkpoint = evaluation is not None and is_due
            if has_checkpoint:
                save(runner, state, writers, callbacks, stop)
                if iteration < last:
                    state = runner.restart_envs(state)
            callbacks.notify(rows)
            stopped = any(all_gather_object(callbacks.process_group, bool(stop)))
            if stopped and not (has_checkpoint and iteration == last):
                if writers:
                    raise RunInterrupted(_describe_interruption(writers))
                return True
    for writer in writers:
        writer.finish(setup_seconds)
    return stopped or bool(stop)


def next_export(config: Config, iteration: int) -> int:
    """The first iteration after `iteration` whose state is evaluated or written."""
    root, last = config.root, config.num_iterations
    intervals = (root.checkpoint.every_iterations, root.evaluation.every_iterations or last)
    return min(last, *((iteration // interval + 1) * interval for interval in intervals))


def _enable_garbage_collection() -> None:
    """Enable garbage collection after the first iteration, for objects that are made from now on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def _explain_failures(stop: Sequence[int], writers: Sequence[RunWriter]) -> Iterator[None]:
    """Add to an error what is kept of its run. One after a stop request becomes `RunInterrupted`: the signal may have
    ended environments, too."""
    try:
        yield
    except RunError as error:
        if stop:
            raise RunInterrupted(_describe_interruption(writers)) from error
        if not writers:
            raise
        if isinstance(error, FailedRuns):
            names = [f"{writer.config.named}: " if len(writers) > 1 else "" for writer in writers]
            kept = [describe_newest_checkpoint(writer.folder) for writer in writers]
            raise FailedRuns({k: f"{names[k]}{why}; {kept[k]}" for k, why in error.reasons.items()}) from error
        raise type(error)(f"{error}; {describe_newest_checkpoint(writers[0].folder)}") from error


def _write_rows(writer: RunWriter, failure: type[BaseException] | None, *_: object) -> None:
    """Write the waiting rows at the end of the loop; what has ended it comes before an error of the disk."""
    with suppress(OSError) if failure else nullcontext():
        writer.write()


def _describe_interruption(writers: Sequence[RunWriter]) -> str:
    """A phrase for runs that were stopped; another rank than 0 knows no folder."""
    if not writers:
        return "stopped at once"
    folder = writers[0].folder
    again = "resumes there" if checkpoint.newest_iteration(folder / "checkpoints") else "starts from scratch"
    kept = describe_newest_checkpoint(folder)
    return f"stopped after iteration {writers[0].loop.iteration}; {kept}; the same command {again}"


def describe_newest_checkpoint(folder: Path) -> str:
    """A phrase for an unfinished run in `folder`: what is kept."""
    iteration = checkpoint.newest_iteration(folder / "checkpoints")
    return f"{folder} is kept up to iteration {iteration}" if iteration else "no checkpoint yet"


def save(
    runner: SeedsRunner, state: Any, writers: Sequence[RunWriter], callbacks: Callbacks, stop: Sequence[int]
) -> None:
    """Write a checkpoint of every run."""
    checkpoints = [writer.save(arrays) for writer, arrays in zip(writers, runner.export(state), strict=False)]
    for writer in writers:
        writer.prune()  # only now that every run has this checkpoint: a resumption needs one that all have
    callbacks.record_videos(writers, checkpoints, stop)


@contextmanager
def _progress_display(config: Config, writers: Sequence[RunWriter]) -> Iterator[Callable[[float], None]]:
    """A function that shows the progress and the speed of each run, in environment steps per second.

    It shows nothing without `writers`.
    """
    if not writers:
        yield lambda sps: None
        return
    total_steps = config.num_iterations * config.ppo.batch_size
    with ProgressDisplay(config.task.name, _title(writers), total_steps, len(writers)) as display:
        yield lambda sps: display.update(
            writers[0].loop.global_step, functools.partial(_recent_mean, writers), sps * len(writers)
        )


def _recent_mean(writers: Sequence[RunWriter]) -> float | None:
    """Mean over the runs of their recent returns; None before an episode of each has ended."""
    means = [writer.loop.recent_mean for writer in writers]
    return sum(means) / len(means) if None not in means else None  # type: ignore[arg-type]


def _title(writers: Sequence[RunWriter]) -> str:
    config, seeds = writers[0].config, [str(writer.config.root.seed) for writer in writers]
    runs = f"{len(writers)} runs" if config.grid_values else f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
    return f"{config.task.name} {config.backend.name} {config.framework.name} {runs}"


def _require_finite(config: Config, metrics_by_run: Sequence[Metrics], iteration: int) -> None:
    """Raise `FailedRuns` if losses of some runs are not finite in this iteration."""
    reasons, specs = {}, metrics_of(config.algorithm)
    always_finite = {metric.name for metric in specs if metric.always_finite}
    for position, metrics in enumerate(metrics_by_run):
        names = [name for name, value in metrics.items() if name in always_finite and not math.isfinite(value)]
        if names:
            reasons[position] = (
                f"{names[0]} is {metrics[names[0]]} in iteration {iteration}: learning diverged; "
                "try a smaller ppo.learning_rate"
            )
    if reasons:
        raise FailedRuns(reasons)
