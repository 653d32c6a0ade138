"""Export of the runs for other programs: a Parquet file, and JSON in the layout of marl-eval."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_bench.commands.report.curves import curves
from ppo_bench.commands.report.groups import ComparedTask

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def write_parquet(connection: DuckDBPyConnection, path: Path) -> None:
    """Write a Parquet file with a row for each run."""
    quoted = str(path).replace("'", "''")
    connection.execute(f"copy runs to '{quoted}' (format parquet)")


def marl_eval(connection: DuckDBPyConnection, tasks: list[ComparedTask]) -> dict[str, Any]:
    """The finished runs, nested by environment, task, algorithm, run and step (Gorsane et al. 2022, arXiv 2209.10485).

    A step is a cell of the learning curve's grid. Its metric is the mean return of the episodes that ended in the cell;
    the absolute metric of a run is the mean return of its last 100 episodes.
    """
    groups = [group for task in tasks for group in task.groups]
    members = [
        [number for number, run in zip(group.numbers, group.runs, strict=True) if run.final_return_mean is not None]
        for group in groups
    ]
    found = [(group, numbers) for group, numbers in zip(groups, members, strict=True) if numbers]
    drawn = curves(connection, [numbers for _, numbers in found], "global_step", seed=0, resamples=1)
    layout: dict[str, Any] = {}
    for (group, numbers), curve in zip(found, drawn, strict=True):
        algorithms = layout.setdefault("ppo_bench", {}).setdefault(group.task, {})
        runs = algorithms.setdefault(group.algorithm, {})
        run_of = dict(zip(group.numbers, group.runs, strict=True))
        for number, values in zip(numbers, curve.runs, strict=True):
            run = run_of[number]
            # Readers of this layout expect a value in every step: cells before the first episode repeat its value.
            known = np.isfinite(values)
            filled = np.interp(np.arange(len(values)), np.flatnonzero(known), values[known]) if known.any() else values
            steps: dict[str, Any] = {
                f"step_{k}": {"step_count": round(x), "return": [value]}
                for k, (x, value) in enumerate(zip(curve.x.tolist(), filled.tolist(), strict=True))
                if math.isfinite(value)
            }
            runs[f"seed_{run.seed}"] = steps | {"absolute_metrics": {"return": [run.final_return_mean]}}
    return layout


def write_marl_eval(connection: DuckDBPyConnection, tasks: list[ComparedTask], path: Path) -> None:
    """Write the result of `marl_eval` to a JSON file."""
    path.write_text(json.dumps(marl_eval(connection, tasks), allow_nan=False) + "\n")
