"""The process of one tracker, which follows the files of a run until its standard input ends.

python -m ppo_bench.runs.trackers RUN_DIR MODULE.CLASS OPTIONS, with the options as JSON. `mirrors.py` starts it.
"""

from __future__ import annotations

import json
import os
import select
import sys
import traceback
from pathlib import Path

from ppo_bench.common.classes import class_named
from ppo_bench.common.cli import exit_code
from ppo_bench.common.files import read_json
from ppo_bench.common.rows import NewRows
from ppo_bench.configuration.choices import Tracker
from ppo_bench.runs.trackers.mirror import Mirror, videos

POLL_SECONDS = 1.0
STDIN = 0


def main(arguments: list[str]) -> int:
    """Mirror the run until it ends."""
    os.nice(10)  # training has priority
    folder = Path(arguments[0])
    tracker: Tracker = class_named("tracker", arguments[1])(**json.loads(arguments[2]))
    trainer = os.getppid()
    mirror = tracker.open(folder, read_json(folder / "run.json"))
    os.write(STDIN, b"r")  # standard input is a socket: this tells the trainer that the tracker is ready
    rows, shown, over = NewRows(folder / "metrics.jsonl"), set[tuple[Path, int]](), False
    while not over:
        over = bool(select.select([STDIN], [], [], POLL_SECONDS)[0]) or os.getppid() != trainer
        mirror.write(rows.new())
        if not over:
            _show(mirror, folder, shown, most=1)  # one at a time, since encoding takes seconds
    result = folder / "result.json"
    mirror.conclude(read_json(result) if result.exists() else None)
    _show(mirror, folder, shown)
    mirror.close()
    return 0


def _show(mirror: Mirror, folder: Path, shown: set[tuple[Path, int]], most: int | None = None) -> None:
    """Pass up to `most` new videos to the tracker; the failure of one does not stop the others."""
    for video in [video for video in videos(folder) if video not in shown][:most]:
        shown.add(video)
        try:
            mirror.show(*video)
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
