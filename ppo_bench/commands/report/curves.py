"""Curves on a grid: returns, losses and other columns of metrics.jsonl, over steps or seconds of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppo_bench.commands.report.statistics import Array, Band, mean_band

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CELLS = 100
"""Number of cells of a curve's grid, K."""


class Curves(NamedTuple):
    """The curves of the N runs of a group over one axis."""

    x: Array
    """Centres of the grid's cells, `[K]`."""
    runs: Array
    """Values of each run, `[N, K]`; NaN before its first value and after its last step."""
    band: Band
    """Mean over runs with its confidence band."""


def curves(
    connection: DuckDBPyConnection,
    groups: Sequence[Sequence[int]],
    axis: str,
    *,
    seed: int,
    resamples: int,
    column: str = "episodic_return",
    weight: str = "episodes",
) -> list[Curves]:
    """The curves of each group of runs over `axis`, which is `global_step` or `training_seconds`.

    `groups` lists the runs' numbers in the table `steps`. The grid of a group goes from 0 to the end of its longest
    run. The value of a cell is the weighted mean of `column` over the iterations that ended in it; with the weight
    `episodes`, that is the mean over episodes. Cells without iterations are interpolated.
    """
    if not groups:
        return []
    group_of = [(run, group) for group, runs in enumerate(groups) for run in runs]
    connection.execute("create or replace temp table members (run INTEGER, team INTEGER)")
    connection.executemany("insert into members values (?, ?)", group_of)
    # An iteration that ends on the border of two cells belongs to the earlier one.
    cell = f"greatest(ceil({axis} * {CELLS} / longest - 1e-9) - 1, 0)::INTEGER"
    cells = connection.execute(
        f"""with spans as (select team, max({axis}) as longest from steps join members using (run) group by team)
        select run, {cell} as cell, sum("{column}" * {weight}) / sum({weight}) as value
        from steps join members using (run) join spans using (team)
        where {weight} > 0 and "{column}" is not null and longest > 0 group by all"""
    ).fetchnumpy()
    ends = connection.execute(
        f"""with spans as (select team, max({axis}) as longest from steps join members using (run) group by team)
        select run, max({cell}) as last, any_value(longest) as longest
        from steps join members using (run) join spans using (team) group by run"""
    ).fetchnumpy()
    last = dict(zip(ends["run"].tolist(), ends["last"].tolist(), strict=True))
    longest = dict(zip(ends["run"].tolist(), ends["longest"].tolist(), strict=True))
    order = np.lexsort((cells["cell"], cells["run"]))
    run_of, cell_of, value_of = (np.asarray(cells[key])[order] for key in ("run", "cell", "value"))
    found = []
    for runs in groups:
        values = np.full((len(runs), CELLS), np.nan)
        for row, run in enumerate(runs):
            here = slice(*np.searchsorted(run_of, [run, run + 1]))
            known, seen = cell_of[here], value_of[here]
            if len(known):
                reached = np.arange(known[0], last[run] + 1)
                values[row, reached] = np.interp(reached, known, seen)
        x = (np.arange(CELLS) + 0.5) * longest[runs[0]] / CELLS
        found.append(Curves(x, values, mean_band([values], seed=seed, resamples=resamples)))
    return found
