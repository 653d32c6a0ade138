#!/usr/bin/env python3
"""Steady speed of every environment on every backend in every framework that can run it, as a Markdown table.

Each run is a separate process, and runs follow one another. The whole table takes hours; `--env` selects a part of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ppo_bench.commands.report.groups import FRAMEWORKS
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import Failed, reason
from ppo_bench.common.progress import say
from ppo_bench.configuration.compose import offered
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config


def main(arguments: list[str]) -> int:
    """Print a row for each environment and backend as soon as it is measured; returns 1 if a run failed, else 0."""
    pairs = [(env, backend) for env, backend, _ in offered()]
    parser = Parser("python launch/speed_table.py", description=__doc__)
    parser.add_argument("--env", nargs="+", choices=sorted({env for env, _ in pairs}), metavar="ENV")
    parser.add_argument("--backend", nargs="+", choices=sorted({backend for _, backend in pairs}), metavar="BACKEND")
    parser.add_argument("--iterations", type=int, default=8, help="iterations per run; the median counts (default 8)")
    parser.add_argument("overrides", nargs="*", help="overrides for every run, such as ppo.num_envs=8")
    options = parser.parse_intermixed_args(arguments)
    wanted = [
        (env, backend)
        for env, backend in pairs
        if env in (options.env or [env]) and backend in (options.backend or [backend])
    ]
    rows = [[[f"env={e}", f"backend={b}", f"framework={f}", *options.overrides] for f in FRAMEWORKS] for e, b in wanted]
    configs = [[load_config(job) for job in row] for row in rows]  # checks all of them before the first run starts
    print(f"| env | backend | num_envs x num_steps | {' | '.join(FRAMEWORKS)} |")
    print(f"|---|---|---|{'---|' * len(FRAMEWORKS)}")
    failed = False
    for (env, backend), row, of_row in zip(wanted, rows, configs, strict=True):
        cells = [_cell(job, config, options.iterations) for job, config in zip(row, of_row, strict=True)]
        sizes = of_row[0].ppo
        print(f"| {env} | {backend} | {sizes.num_envs} x {sizes.num_steps} | {' | '.join(cells)} |", flush=True)
        failed |= "failed" in cells
    return int(failed)


def _cell(job: list[str], config: Config, iterations: int) -> str:
    if config.backend.in_graph and not config.framework.takes_graph_envs:
        return ""
    try:
        return f"{_steady_sps(job, iterations * config.ppo.batch_size):,.0f}"
    except Failed as error:
        say(str(error))
        return "failed"


def _steady_sps(job: list[str], total_timesteps: int) -> float:
    """Environment steps per second of a run's median iteration. Raises `Failed` if the run fails."""
    with tempfile.TemporaryDirectory() as outputs:
        command = [sys.executable, "-m", "ppo_bench", *job, f"total_timesteps={total_timesteps}", f"outputs={outputs}"]
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        if run.returncode:
            raise Failed(f"{' '.join(job)}: {reason(run.returncode, run.stderr.splitlines())}")
        result = json.loads((Path(run.stdout.split()[-1]) / "result.json").read_text())
        return float(result["steady_sps"])


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
