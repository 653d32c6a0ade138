"""What a multirun does before its first job, a check of all, and after its last one: a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ppo_bench.common.columns import aligned
from ppo_bench.common.files import read_json
from ppo_bench.common.progress import print_status
from ppo_bench.sweeps.expand import check_jobs
from ppo_bench.sweeps.job import OUTCOME, Outcome, format_return


class Sweep(Callback):
    """Checks all jobs of a multirun before the first one, and prints a row for each at the end.

    It ends the command with exit code 1 if a job has failed, or with the error of a wrong job. Each is a `SystemExit`,
    since Hydra makes a warning of any other exception of a callback.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_start`."""
        try:
            check_jobs(config)
        except Exception as error:
            raise SystemExit(error) from error

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_end`."""
        paths = Path(config.hydra.sweep.dir).glob(f"*/{OUTCOME}")
        in_order = sorted(paths, key=lambda path: (len(path.parent.name), path.parent.name))  # of their numbers
        outcomes = [Outcome(**read_json(path)) for path in in_order]
        print_table(outcomes)
        if any(outcome.state == "failed" for outcome in outcomes):
            raise SystemExit(1)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print a row for each job: its state, the overrides that not all jobs share, and its final return or error.

    A last line counts the states.
    """
    shared = set.intersection(*(set(outcome.overrides) for outcome in outcomes)) if len(outcomes) > 1 else set()
    rows = [("state", "job", "final return or error")]
    for outcome in outcomes:
        own = " ".join(word for word in outcome.overrides if word not in shared)
        rows.append((outcome.state, own, outcome.error or format_return(outcome.final_return_mean)))
    print(aligned(rows), file=sys.stderr)
    states = [outcome.state for outcome in outcomes]
    print_status(", ".join(f"{states.count(state)} {state}" for state in ("done", "failed", "skipped")))
