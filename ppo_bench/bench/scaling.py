"""What a training costs as the work grows: speed and memory against environments, steps, width and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_bench.bench.report import COLOURS

AXES = {
    "num_envs": "ppo.num_envs={}",
    "num_steps": "ppo.num_steps={}",
    "hidden_size": "network.hidden_sizes=[{0},{0}]",
    "num_seeds": "num_seeds={}",
}
"""Each axis, and the word that sets it."""
TITLES = {
    "num_envs": "environments",
    "num_steps": "steps of a rollout",
    "hidden_size": "units of a hidden layer",
    "num_seeds": "seeds in one program",
}


def print_scales(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each point."""
    print(f"{'axis':<13}{'value':>6}  {'backend':<12}{'framework':<15}{'SPS':>12}{'MB':>8}{'GPU MB':>8}")
    for row in rows:
        line = f"{row['axis']:<13}{row['value']:>6}  {row['backend']:<12}{row['framework']:<15}"
        line += f"{row['sps']:>12,.0f}{row['peak_memory_bytes'] / 1e6:>8,.0f}"
        gpu = row["gpu_memory_bytes"]
        print(line + ("" if gpu is None else f"{gpu / 1e6:>8,.0f}"))


def draw_scales(title: str, rows: Sequence[dict[str, Any]], path: Path) -> None:
    """One picture, beside the JSON file at `path`: a column for each axis, speed above memory."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    axes = [axis for axis in AXES if any(row["axis"] == axis for row in rows)]
    programs = list(dict.fromkeys((row["framework"], row["backend"]) for row in rows))
    figure, grid = plt.subplots(
        2,
        len(axes),
        figsize=(3.2 * len(axes) + 0.8, 6.4),
        layout="constrained",
        squeeze=False,
        sharey="row",
        sharex="col",
    )
    for column, axis in enumerate(axes):
        for k, (framework, backend) in enumerate(programs):
            own = [row for row in rows if (row["axis"], row["framework"], row["backend"]) == (axis, framework, backend)]
            style = {"color": COLOURS[k % len(COLOURS)], "marker": "osD^v"[k // len(COLOURS) % 5], "markersize": 4}
            values = [row["value"] for row in own]
            grid[0, column].plot(values, [row["sps"] for row in own], label=f"{framework}, {backend}", **style)
            grid[1, column].plot(values, [row["peak_memory_bytes"] / 1e6 for row in own], **style)
        for ax in grid[:, column]:
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
        grid[1, column].set_xlabel(TITLES[axis])
    grid[0, 0].set_ylabel("environment steps per second")
    grid[1, 0].set_ylabel("peak memory, MB")
    figure.suptitle(f"{title}: cost as work grows")
    handles = {label: handle for ax in grid[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)
