"""What a multirun does before its first job and after its last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import say


class Sweep(Callback):
    """Checks all jobs of a multirun before the first one, and prints a row for each at the end.

    It ends the command with exit code 2 if a job is wrong, with 1 if one has failed. Hydra makes a warning of any other
    exception of a callback. Imports are local since each single run has the callback, too.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_start`."""
        from ppo_bench.sweeps.preflight import check_jobs

        try:
            check_jobs(config)
        except ConfigError as error:
            say(str(error))
            raise SystemExit(2) from error

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_end`."""
        from ppo_bench.sweeps.table import outcomes_in, print_table

        outcomes = outcomes_in(Path(config.hydra.sweep.dir))
        print_table(outcomes)
        if any(outcome.state == "failed" for outcome in outcomes):
            raise SystemExit(1)
