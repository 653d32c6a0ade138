"""Progress display: a live line on a terminal, a plain line every few seconds elsewhere.

All output goes to stderr; stdout is for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ppo_bench.common.paths import with_relative_paths

PLAIN_INTERVAL_SECONDS = 5.0
LIVE_INTERVAL_SECONDS = 0.1
MAX_NAME_LENGTH = 20
"""Maximum number of characters of a name, so that a line with bar, steps, return, speed and time fits 80 columns."""
FIRST_ESTIMATE = 3
"""First iteration that shows the remaining time; earlier ones include compilation."""


def print_status(message: str) -> None:
    """Print one line to stderr, with paths below the current folder relative to it.

    A closed pipe or a terminal that has gone is no error.
    """
    with suppress(OSError):
        print(f"ppo_bench: {with_relative_paths(message)}", file=sys.stderr, flush=True)


class ProgressDisplay:
    """Display of a training's steps, return, speed and remaining time."""

    def __init__(self, name: str, title: str, total_steps: int, runs: int = 1) -> None:
        """`total_steps` is the number of environment steps of each of `runs` runs. The live line of a terminal shows
        the short `name`; lines of a file show the `title`."""
        self._title, self._total_steps, self._runs, self._updates = title, total_steps, runs, 0
        self._last_shown = time.monotonic()
        console = Console(stderr=True)
        self._live: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[status]}"),
            )
            self._live = Progress(*columns, console=console, refresh_per_second=4)
            self._task = self._live.add_task(_shorten(name), total=total_steps, status="")

    def __enter__(self) -> ProgressDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, global_step: int, mean_return: Callable[[], float | None], sps: float) -> None:
        """Show the state after an iteration, unless the last one was shown a moment ago.

        `global_step` is the step of each run, `sps` the environment steps per second of all runs together.
        `mean_return` returns None before the first episode has ended. The remaining time is shown from iteration
        `FIRST_ESTIMATE` on.
        """
        self._updates += 1
        interval = LIVE_INTERVAL_SECONDS if self._live else PLAIN_INTERVAL_SECONDS
        if time.monotonic() - self._last_shown < interval and global_step < self._total_steps:
            return
        self._last_shown, recent = time.monotonic(), mean_return()
        text = f"return {'-' if recent is None else f'{recent:.2f}'}  {sps:,.0f} SPS"
        if self._updates >= FIRST_ESTIMATE or global_step >= self._total_steps:
            text += f"  {duration((self._total_steps - global_step) * self._runs / sps)} left"
        if self._live:
            steps = f"{_abbreviate(global_step)} of {_abbreviate(self._total_steps)}"
            self._live.update(self._task, completed=global_step, status=f"{steps}  {text}")
        else:
            print_status(f"{self._title}  step {global_step:,} of {self._total_steps:,}  {text}")


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"


def _abbreviate(steps: int) -> str:
    """A number of steps in at most five characters: `980`, `86k`, `12.3M`."""
    for unit, sign in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{sign}" if steps < 1000 * unit else f"{steps // unit}{sign}"
    return str(steps)


def duration(seconds: float) -> str:
    """`seconds` as `m:ss` or `h:mm:ss`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
