"""Comparisons of this project's runs with each other: between frameworks, and between backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from campaign_rows import KEPT, groups, markdown, rows_of, shown, with_precision

from ppo_bench.commands.report.published import MARGIN, equivalence_margin
from ppo_bench.commands.report.statistics import Comparison, moments, tost
from ppo_bench.common.paths import FRAMEWORKS


def between_frameworks(out: Path) -> str:
    """A Markdown table that compares final returns and areas under the curve of each pair of frameworks on a task."""
    areas, rows = _areas(out), []
    for task, own in groups(rows_of(out), "env", "backend", "precision", "campaign", "env_id", "steps").items():
        by_seed = {name: {r["seed"]: r for r in own if r["framework"] == name} for name in FRAMEWORKS}
        for later, ours in enumerate(FRAMEWORKS):
            for theirs in FRAMEWORKS[:later]:
                seeds = sorted(by_seed[ours].keys() & by_seed[theirs].keys())
                if len(seeds) > 1:
                    pair = [[by_seed[name][seed] for seed in seeds] for name in (ours, theirs)]
                    cells = [with_precision(f"{task[4]}, {task[1]}", task[2]), f"{ours}, {theirs}", str(len(seeds))]
                    cells += _compared(pair, _final)
                    cells += _compared(pair, lambda r: areas[tuple(r[key] for key in KEPT)])
                    rows.append(cells)
    verdicts = ("final return [90%]", "verdict", "area under the curve [90%]", "verdict")
    return markdown(("env, backend", "pair", "seeds", *verdicts), rows)


def between_backends(out: Path) -> str:
    """A Markdown table that compares final returns of a task on each backend with those on the first one.

    The test is Welch's and not paired, since a seed starts other episodes in another simulator.
    """
    rows = []
    for task, own in groups(rows_of(out), "env_id", "framework", "precision", "campaign", "env", "steps").items():
        finals = {
            name: np.array([_final(r) for r in of_backend])
            for (name,), of_backend in sorted(groups(own, "backend").items())
        }
        first = next(iter(finals.values()))
        if len(finals) < 2 or min(map(len, finals.values())) < 2:
            continue
        for name, values in finals.items():
            margin = equivalence_margin(task[0], float(first.mean()), MARGIN)
            cells = _cells(tost(values, first, margin)) if values is not first else ["", ""]
            about = [task[0], with_precision(task[1], task[2]), name, str(len(values)), shown(moments(values))]
            rows.append([*about, *cells])
    return markdown(("env", "framework", "backend", "seeds", "final return", "difference [90%]", "verdict"), rows)


def _final(run: dict[str, Any]) -> float:
    return float(run["final_return_mean"])


def _compared(pair: Sequence[Sequence[dict[str, Any]]], value: Callable[[dict[str, Any]], float]) -> list[str]:
    """Two cells: difference and verdict of a paired test of `value`, for two samples of runs with the same seeds."""
    ours, theirs = (np.array([value(run) for run in side]) for side in pair)
    return _cells(
        tost(ours, theirs, equivalence_margin(pair[0][0]["env_id"], float(theirs.mean()), MARGIN), paired=True)
    )


def _cells(found: Comparison) -> list[str]:
    return [f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]", found.verdict]


def _areas(out: Path) -> dict[tuple[Any, ...], float]:
    """Area under the learning curve of each run: its mean return over steps, from the first episode on."""
    keys = ", ".join(KEPT)
    file = out / "curves.parquet"
    query = f"select {keys}, avg(value) from read_parquet('{file}') where axis = 'steps' group by {keys}"
    return {tuple(row[:-1]): row[-1] for row in duckdb.connect().execute(query).fetchall()}
