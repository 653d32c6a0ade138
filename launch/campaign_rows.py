"""Rows of the campaigns' runs, as docs/results/runs.parquet keeps them, and the table of what the campaigns took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from ppo_bench.commands.report.statistics import SampleMoments

KEPT = ("campaign", "env", "env_id", "backend", "framework", "precision", "seed", "steps")
"""Columns that identify a run."""
MEASURED = (
    *("final_return_mean", "mean_sps", "wall_seconds", "compile_seconds", "resumes"),
    *("cpu", "cores", "git_commit", "started"),
)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of runs.parquet as dictionaries, in order."""
    names = (*KEPT, *MEASURED)
    query = f"select {', '.join(names)} from read_parquet('{out / 'runs.parquet'}')"
    found = duckdb.connect().execute(query).fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]


def groups(runs: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The runs by their values of `keys`, in the order in which these appear."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault(tuple(run[key] for key in keys), []).append(run)
    return found


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""

    def line(cells: Sequence[object]) -> str:
        return f"| {' | '.join(map(str, cells))} |"

    return "\n".join([line(columns), "|" + "---|" * len(columns), *map(line, rows)])


def with_precision(words: str, precision: str) -> str:
    """The words, with the precision unless it is the default, float32."""
    return words if precision == "float32" else f"{words}, {precision}"


def shown(ours: SampleMoments) -> str:
    """Mean and standard deviation as text; the mean alone of a single run."""
    return f"{ours.mean:.2f} ± {ours.std:.2f}" if ours.n > 1 else f"{ours.mean:.2f}"


def trained(out: Path) -> str:
    """A Markdown table of what each campaign took: runs, steps, hours of training, and how often runs were resumed."""
    rows = []
    for (campaign,), own in groups(rows_of(out), "campaign").items():
        resumes = [run["resumes"] for run in own if run["resumes"] is not None]
        known = f"{sum(resumes)}" if resumes else "not recorded"
        if 0 < len(resumes) < len(own):
            known += f" (recorded for {len(resumes)} runs)"
        cpus = sorted({f"{run['cpu']}, {run['cores']} core{'' if run['cores'] == 1 else 's'}" for run in own})
        steps = sum(run["steps"] for run in own) / 1e6
        # Seeds of one program (`num_seeds`) have the program's seconds, each of them.
        programs = {tuple(run[key] for key in (*KEPT, "wall_seconds") if key != "seed") for run in own}
        hours = sum(program[-1] for program in programs) / 3600
        rows.append((campaign, len(own), f"{steps:,.0f}", f"{hours:.1f}", known, "; ".join(cpus)))
    return markdown(("campaign", "runs", "million steps", "hours of training", "times resumed", "CPU or GPU"), rows)
