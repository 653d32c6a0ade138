"""Curves on a grid: returns, losses and other columns of metrics.jsonl, over steps or seconds of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.statistics import Array, mean_band

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CELLS = 100
"""Number of cells of a curve's grid, K."""


@dataclass
class Curves:
    """The curves of the N runs of a group over one axis."""

    x: Array
    """Centres of the grid's cells, `[K]`."""
    mean: Array
    """Mean over runs; NaN where a run has no value."""
    low: Array
    """Lower end of the mean's interval."""
    high: Array
    runs: Array
    """Values of each run, `[N, K]`; NaN before its first value and after its last step."""


def curves(
    connection: DuckDBPyConnection,
    groups: Sequence[Sequence[Run]],
    axis: str,
    column: str = "episodic_return",
) -> list[Curves]:
    """The curves of each group of runs over `axis`, which is `global_step` or `training_seconds`.

    The grid of a group goes from 0 to the end of its longest run. The value of a cell is the mean of `column` over the
    iterations that ended in it, or of returns over their episodes. Cells without iterations are interpolated.
    """
    weight, quoted = "episodes" if column == "episodic_return" else "1", column.replace('"', '""')
    members = [(run.folder, number) for number, runs in enumerate(groups) for run in runs]
    connection.execute("create or replace temp table members (folder VARCHAR, team INTEGER)")
    connection.executemany("insert into members values (?, ?)", members)
    # An iteration that ends on the border of two cells belongs to the earlier one.
    cells = connection.execute(
        f"""with spans as (select team, max({axis}) as longest from metrics join members using (folder) group by team)
        select folder, greatest(ceil({axis} * {CELLS} / nullif(longest, 0) - 1e-9) - 1, 0)::INTEGER as cell,
        sum("{quoted}" * {weight}) / nullif(sum({weight}) filter ("{quoted}" is not null), 0), any_value(longest)
        from metrics join members using (folder) join spans using (team) group by folder, cell order by folder, cell"""
    ).fetchall()
    cells_of = {folder: list(rows) for folder, rows in groupby(cells, key=itemgetter(0))}
    found = []
    for runs in groups:
        values = np.full((len(runs), CELLS), np.nan)
        for row, run in enumerate(runs):
            _, last, _, longest = cells_of[run.folder][-1]
            if known := [(cell, value) for _, cell, value, _ in cells_of[run.folder] if value is not None]:
                reached = np.arange(known[0][0], last + 1)
                values[row, reached] = np.interp(reached, *np.array(known).T)
        x = (np.arange(CELLS) + 0.5) * longest / CELLS
        found.append(Curves(x, *mean_band(values), values))
    return found
