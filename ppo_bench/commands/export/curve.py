"""The return of a training over its steps, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SMOOTHED_EPISODES = 100
"""Episodes over which the thick line is the mean."""


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw the rows of a metrics.jsonl into a PNG file; false, and no file, where no episode ended."""
    ended = [row for row in rows if row["episodes"] and row["episodic_return"] is not None]
    path.unlink(missing_ok=True)
    if not ended:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    steps, returns, episodes = (np.array([row[key] for row in ended]) for key in _COLUMNS)
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, returns, color="#0072b2", alpha=0.3, lw=0.8, label="episodes of an iteration")
    smooth = smoothed(returns, episodes)
    axes.plot(steps, smooth, color="#0072b2", lw=1.8, label=f"last {SMOOTHED_EPISODES} episodes")
    axes.set(xlabel="environment steps", ylabel="mean return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    return True


_COLUMNS = ("global_step", "episodic_return", "episodes")


def smoothed(returns: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """Means `[K]` over the last 100 episodes, or all where there are fewer, of means `returns [K]` over `episodes [K]`.

    Whole iterations are taken, the fewest that have 100 episodes.
    """
    counts, sums = np.cumsum(episodes), np.cumsum(returns * episodes)
    counts, sums = np.append(0, counts), np.append(0.0, sums)
    starts = np.maximum(np.searchsorted(counts, counts[1:] - SMOOTHED_EPISODES, side="right") - 1, 0)
    means: np.ndarray = (sums[1:] - sums[starts]) / (counts[1:] - counts[starts])
    return means
