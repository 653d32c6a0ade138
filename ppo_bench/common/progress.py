"""What a person sees while a run goes on: a live line on a terminal, a plain line every few seconds elsewhere.

Everything goes to stderr; stdout belongs to results.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

PLAIN_INTERVAL_SECONDS = 5.0
MOST_OF_NAME = 20
"""Characters, so that a line with bar, steps, return, speed and time fits 80 columns."""
FIRST_ESTIMATE = 3
"""The iteration from which on the time left is told."""


def say(message: str) -> None:
    """One line on stderr. No run ends because nobody listens any more."""
    with suppress(BrokenPipeError):
        print(f"ppo_bench: {message}", file=sys.stderr, flush=True)


class ProgressDisplay:
    """Shows a training's steps, return, speed and remaining time."""

    def __init__(self, name: str, title: str, total_steps: int, seeds: int = 1) -> None:
        """`total_steps` are those of each of so many seeds. A terminal, which keeps one line, shows the `name`, and a
        file the `title`."""
        self._title, self._total_steps, self._seeds, self._updates = title, total_steps, seeds, 0
        self._last_line = time.monotonic()
        console = Console(stderr=True)
        self._live: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[status]}"),
            )
            self._live = Progress(*columns, console=console, refresh_per_second=4)
            self._task = self._live.add_task(_cut(name), total=total_steps, status="")

    def __enter__(self) -> ProgressDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, global_step: int, mean_return: float | None, sps: float) -> None:
        """Show the state after an iteration; `mean_return` is None before the first episode has ended.

        `sps` is the speed of all seeds together, `global_step` the step of each. How long is left is told from the
        third iteration on: the first ones compile.
        """
        self._updates += 1
        shown = f"return {'-' if mean_return is None else f'{mean_return:.2f}'}  {sps:,.0f} SPS"
        if self._updates >= FIRST_ESTIMATE or global_step >= self._total_steps:
            shown += f"  {duration((self._total_steps - global_step) * self._seeds / sps)} left"
        if self._live:
            steps = f"{_rounded(global_step)} of {_rounded(self._total_steps)}"
            self._live.update(self._task, completed=global_step, status=f"{steps}  {shown}")
        elif time.monotonic() - self._last_line >= PLAIN_INTERVAL_SECONDS or global_step >= self._total_steps:
            self._last_line = time.monotonic()
            say(f"{self._title}  step {global_step:,} of {self._total_steps:,}  {shown}")


def _cut(name: str) -> str:
    return name if len(name) <= MOST_OF_NAME else f"{name[: MOST_OF_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


def _rounded(steps: int) -> str:
    """Steps in four characters or five: `980`, `86k`, `12.3M`."""
    for unit, sign in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{sign}" if steps < 1000 * unit else f"{steps // unit}{sign}"
    return str(steps)


def duration(seconds: float) -> str:
    """`seconds` as `m:ss` or `h:mm:ss`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
