"""Words for what an interruption of a training leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ppo_bench.common.errors import Failed, FailedRuns, Interrupted
from ppo_bench.runners import checkpoint
from ppo_bench.runs.record import Record


def what_is_kept(folder: Path, iteration: int) -> str:
    """A phrase for a run in `folder` that was stopped after `iteration`: what is kept and how it goes on."""
    evaluable = any((folder / "checkpoints").glob(f"snapshot_{iteration:08d}"))
    shown = f"; python -m ppo_bench.evaluate {folder} plays it as it is" if evaluable else ""
    return f"stopped after iteration {iteration}; {_what_can_go_on(folder)}{shown}"


def _what_can_go_on(folder: Path) -> str:
    if kept := _kept(folder):
        return f"{kept}; the same command resumes there"
    return "nothing is to be resumed before the first checkpoint; the same command starts again"


def _kept(folder: Path) -> str | None:
    kept = checkpoint.newest_iteration(folder / "checkpoints")
    return f"{folder} is kept up to iteration {kept}" if kept else None


def kept_so_far(folder: Path) -> str:
    """A phrase for a run in `folder` that has failed: what is kept."""
    return _kept(folder) or "it was before the first checkpoint"


@contextmanager
def told_to_stop(stop: Sequence[int], records: Sequence[Record]) -> Iterator[None]:
    """Turn a failure after a stop request into `Interrupted`: the signal may have ended environments, too."""
    try:
        yield
    except Failed as error:
        if not records and stop:  # another rank than 0, which knows no folder
            raise Interrupted("stopped at once") from error
        if not records:
            raise
        first = records[0]
        if stop:
            raise Interrupted(what_is_kept(first.folder, first.loop.iteration)) from error
        if isinstance(error, FailedRuns):
            raise FailedRuns(
                {k: f"{why}; {kept_so_far(records[k].folder)}" for k, why in error.reasons.items()}
            ) from error
        raise type(error)(f"{error}; {kept_so_far(first.folder)}") from error
