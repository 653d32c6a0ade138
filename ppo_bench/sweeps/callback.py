"""The callback of Hydra's that ends a multirun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class PrintTable(Callback):
    """Prints a row for each job of a multirun; ends the command with exit code 1 if one has failed."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """See `Callback.on_multirun_end`."""
        from ppo_bench.sweeps.table import outcomes_in, print_table  # not before: each single run has the callback, too

        outcomes = outcomes_in(Path(config.hydra.sweep.dir))
        print_table(outcomes)
        if any(outcome.state == "failed" for outcome in outcomes):
            raise SystemExit(1)
