#!/usr/bin/env python3
"""The picture of README: `launch/readme_picture.py` plots returns over minutes, from docs/results/curves.parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import matplotlib as mpl
import numpy as np

from ppo_bench.common.cli import Parser, exit_code

mpl.use("svg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"
FRAMEWORKS = {"torch_eager": "#4269d0", "torch_compile": "#c2410c", "jax_xla": "#15803d"}
"""Colours of each framework's curve."""
TASKS = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}


def main(arguments: list[str]) -> int:
    """Plot returns over minutes of training for each framework: mean over seeds and interquartile range."""
    parser = Parser("python launch/readme_picture.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS / "assets", help="where the picture goes (docs/assets)")
    out = parser.parse_args(arguments).out / "minutes.svg"
    file = DOCS / "results" / "curves.parquet"
    style: Any = {"font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "readme", "svg.fonttype": "path"}
    with plt.rc_context(style):
        figure, axes = plt.subplots(1, len(TASKS), figsize=(8.4, 3.3), layout="constrained")
        for axis, (env, title) in zip(axes, TASKS.items(), strict=True):
            for framework, colour in FRAMEWORKS.items():
                minutes, runs = _curves(file, env, framework)
                axis.plot(minutes, runs.mean(0), color=colour, lw=2, label=f"{framework}, {len(runs)} seeds")
                axis.fill_between(minutes, *np.quantile(runs, (0.25, 0.75), axis=0), color=colour, alpha=0.2, lw=0)
            axis.set(title=title, xlabel="minutes of training", ylabel="episodic return")
            axis.set_xlim(left=0)
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.3, lw=0.8)
            axis.legend(frameon=False, loc="lower right")
        figure.savefig(out, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    print(out)
    return 0


def _curves(file: Path, env: str, framework: str) -> tuple[np.ndarray, np.ndarray]:
    """Minutes `[100]`, up to the end of the fastest seed, and each seed's returns at these times, `[seeds, 100]`.

    The seeds are those of the CPU that most of them had: minutes of several cannot be averaged.
    """
    query = (
        "with timed as (select seed, cpu from read_parquet(?) "
        "where campaign = 'classic' and env = ? and framework = ?) "
        "select seed, x / 60 as x, value from read_parquet(?) join timed using (seed) "
        "where env = ? and framework = ? and axis = 'seconds' and campaign = 'classic' and precision = 'float32' "
        "and value is not null and cpu = (select mode(cpu) from timed) order by seed, cell"
    )
    of = [env, framework]
    runs = [str(file.parent / "runs.parquet"), *of, str(file), *of]
    found: dict[str, Any] = duckdb.connect().execute(query, runs).fetchnumpy()
    seeds = np.unique(found["seed"])
    of_seed = [found["seed"] == seed for seed in seeds]
    end = min(found["x"][rows].max() for rows in of_seed)
    begin = max(found["x"][rows].min() for rows in of_seed)
    grid = np.linspace(begin, end, 100)
    return grid, np.stack([np.interp(grid, found["x"][rows], found["value"][rows]) for rows in of_seed])


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
