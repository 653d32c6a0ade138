"""What a multirun does before its first job, a check of all, and after its last one: a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import RunError
from ppo_bench.common.files import read_json
from ppo_bench.common.progress import print_status
from ppo_bench.sweeps.expand import check_jobs
from ppo_bench.sweeps.job import OUTCOME, Outcome, format_return


class Sweep(Callback):
    """Checks all jobs of a multirun before the first one, and prints a row for each at the end.

    It ends the command with an error if a job is wrong or has failed, as a `SystemExit`, since Hydra makes a warning of
    any other exception of a callback.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_start`."""
        try:
            self._earlier = _outcome_files(config.hydra.sweep.dir)
            check_jobs(config)
        except Exception as error:
            raise SystemExit(error) from error

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_end`."""
        try:
            print_outcomes(config.hydra.sweep.dir, self._earlier)
        except Exception as error:
            raise SystemExit(error) from error


def _outcome_files(sweep_dir: str) -> dict[Path, int]:
    """The files of outcomes below a folder, in the order of their jobs' numbers, with the times of their writing."""
    paths = sorted(Path(sweep_dir).rglob(OUTCOME), key=lambda path: (len(str(path)), str(path)))
    return {path: path.stat().st_mtime_ns for path in paths}


def print_outcomes(sweep_dir: str, earlier: Mapping[Path, int]) -> None:
    """Print a row for each job of a sweep: its state, the overrides that not all jobs share, and its final return or
    error. A last line counts the states; it is a `RunError` if a job has failed.

    `earlier` are the files that were there before the sweep.
    """
    written = _outcome_files(sweep_dir).items()
    outcomes = [Outcome(**read_json(path)) for path, time in written if earlier.get(path) != time]
    shared = set.intersection(*(set(outcome.overrides) for outcome in outcomes)) if len(outcomes) > 1 else set()
    rows = [("state", "job", "final return or error")]
    for outcome in outcomes:
        own = " ".join(word for word in outcome.overrides if word not in shared)
        rows.append((outcome.state, own, outcome.error or format_return(outcome.final_return_mean)))
    print(aligned(rows), file=sys.stderr)
    states = [outcome.state for outcome in outcomes]
    said = ", ".join(f"{states.count(state)} {state}" for state in ("done", "failed", "skipped"))
    if "failed" in states:
        raise RunError(said)
    print_status(said)
