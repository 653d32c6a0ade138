"""Words for what an interruption of a training leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ppo_bench.common.errors import FailedRuns, RunError, RunInterrupted
from ppo_bench.runners import checkpoint
from ppo_bench.runs.run_writer import RunWriter


def describe_interruption(folder: Path, iteration: int) -> str:
    """A phrase for a run in `folder` that was stopped after `iteration`: what is kept and how it goes on."""
    evaluable = any((folder / "checkpoints").glob(f"snapshot_{iteration:08d}"))
    hint = f"; python -m ppo_bench.evaluate {folder} evaluates the policy so far" if evaluable else ""
    return f"stopped after iteration {iteration}; {_describe_resumption(folder)}{hint}"


def _describe_resumption(folder: Path) -> str:
    if phrase := _newest_checkpoint_phrase(folder):
        return f"{phrase}; the same command resumes there"
    return "no checkpoint yet; the same command starts from scratch"


def _newest_checkpoint_phrase(folder: Path) -> str | None:
    iteration = checkpoint.newest_iteration(folder / "checkpoints")
    return f"{folder} is kept up to iteration {iteration}" if iteration else None


def describe_newest_checkpoint(folder: Path) -> str:
    """A phrase for a run in `folder` that has failed: what is kept."""
    return _newest_checkpoint_phrase(folder) or "it was before the first checkpoint"


@contextmanager
def explain_failures(stop: Sequence[int], writers: Sequence[RunWriter]) -> Iterator[None]:
    """Turn a failure after a stop request into `RunInterrupted`: the signal may have ended environments, too."""
    try:
        yield
    except RunError as error:
        if not writers and stop:  # another rank than 0, which knows no folder
            raise RunInterrupted("stopped at once") from error
        if not writers:
            raise
        first = writers[0]
        if stop:
            raise RunInterrupted(describe_interruption(first.folder, first.loop.iteration)) from error
        if isinstance(error, FailedRuns):
            raise FailedRuns(
                {k: f"{why}; {describe_newest_checkpoint(writers[k].folder)}" for k, why in error.reasons.items()}
            ) from error
        raise type(error)(f"{error}; {describe_newest_checkpoint(first.folder)}") from error
