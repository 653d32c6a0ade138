"""`python -m ppo_bench.watch DIR [--once]`: state and progress of the runs under a folder, from their files alone.

A run is "running" while a process holds its folder's lock ("starting" before its run.json is there), "done" if it has a
result, "failed" if an error ended its training, "broken" if its files cannot be read, and otherwise "stopped"; the same
command would resume it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ppo_bench.commands.report.folders import Run, read
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import duration
from ppo_bench.runs.results import (
    LOCK_FILE,
    RUN_FILES,
    Progress,
    error_of,
    is_in_use,
    progress_of,
    recent_return,
    run_folders,
)

REFRESH_SECONDS = 1.0
WIDE = 10_000  # width in columns if stdout is a pipe, so that no row is wrapped
LONGEST_REMARK = 160
STATES = {"running": "green", "starting": "green", "stopped": "yellow", "failed": "red", "broken": "red", "done": "dim"}
"""The states of runs with their colours, in the order of the table."""


@dataclass(frozen=True)
class RunRow:
    """A row of the table: one run."""

    folder: Path
    state: str
    run: Run | None = None
    """None, as `progress`, if it has no run.json yet or its files cannot be read."""
    progress: Progress | None = None
    mean_return: float | None = None
    """Mean return of the last 100 episodes."""
    remark: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time at the current speed, in seconds; None unless the run is running."""
        if self.state != "running" or self.progress is None or not self.progress.sps:
            return None
        return (self.progress.total - self.progress.step) / self.progress.sps


def main(arguments: list[str]) -> int:
    """Show the table, and on a terminal keep it up to date."""
    parser = Parser("python -m ppo_bench.watch", description=__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path, help="an outputs folder, or any folder of runs")
    parser.add_argument("--once", action="store_true", help="print the table once and exit")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        raise ConfigError(f"{options.folder} is not a folder: name one under which there are runs")
    rows = find_rows(options.folder)
    if not rows:
        raise ConfigError(f"there are no runs under {options.folder}")
    console = Console()
    if options.once or not console.is_terminal:
        # In a pipe, every row is one line.
        (console if console.is_terminal else Console(width=WIDE)).print(shown(rows, options.folder))
        return 0
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(shown(find_rows(options.folder), options.folder, console.height - 2), refresh=True)
                time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        console.print(shown(find_rows(options.folder), options.folder, console.height - 2))
        return 0


def find_rows(folder: Path) -> list[RunRow]:
    """A row for each run under a folder, running ones first."""
    rows = map(look, run_folders(folder, (*RUN_FILES, LOCK_FILE)))  # a run that starts has only its lock
    states = list(STATES)
    return sorted(rows, key=lambda row: (states.index(row.state), row.folder))


def look(folder: Path) -> RunRow:
    """The row of the run in `folder`."""
    held = is_in_use(folder)
    error = None if held else error_of(folder)
    state = "running" if held else "failed" if error else "stopped"
    if not (folder / "run.json").exists():
        return RunRow(folder, "starting" if held else state, remark="" if held else error or "there is no run.json")
    try:
        run, progress = read(folder), progress_of(folder)
        if run.finished:
            return RunRow(folder, "done", run, progress, run.final_return_mean)
        return RunRow(folder, state, run, progress, recent_return(folder), error or "")
    except ConfigError as damage:
        return RunRow(folder, "broken", remark=str(damage).split("; ")[0].replace(f"{folder}/", ""))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as damage:
        return RunRow(folder, "broken", remark=f"no record of a run: {type(damage).__name__} {damage}")


def shown(rows: list[RunRow], folder: Path, limit: int | None = None) -> Group:
    """The table with at most `limit` rows, below a line that counts the runs in each state."""
    count = {state: sum(row.state == state for row in rows) for state in STATES}
    line = ", ".join(f"{number} {state}" for state, number in count.items() if number)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("state", "env", "backend", "framework"):
        table.add_column(column, no_wrap=True)
    for column in ("seed", "step", "of", "return", "SPS", "left"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("folder", overflow="fold", style="dim")
    for row in rows[:limit]:
        where, run, progress = row.folder.relative_to(folder).as_posix(), row.run, row.progress
        table.add_row(
            Text(row.state, STATES[row.state]),
            *(Text(text) for text in ((run.env, run.backend, run.framework, str(run.seed)) if run else [""] * 4)),
            *((f"{progress.step:,}", f"{progress.total:,}") if progress else ("", "")),
            "" if row.mean_return is None else f"{row.mean_return:,.2f}",
            f"{progress.sps:,.0f}" if progress and progress.sps is not None else "",
            "" if row.seconds_left is None else duration(row.seconds_left),
            Text(f"{where}: {shorten(row.remark, LONGEST_REMARK, placeholder=' ...')}" if row.remark else where),
        )
    return Group(Text(f"{len(rows)} run{'s' * (len(rows) > 1)}: {line}"), table)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
