"""Helpers for tests of the report: they run the command and read its output."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from ppo_bench.commands.report.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.synthetic import FRAMEWORKS, write_run


def report(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    code = exit_code(main, [*map(str, arguments)])
    printed = capfd.readouterr()
    return code, printed.out, printed.err


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table of the report."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def aggregates(out: Path) -> dict[tuple[str, str, str], tuple[float, float, float, int]]:
    def number(text: str) -> float:
        return float(text) if text else math.nan

    return {
        (row["env"], row["framework"], row["metric"]): (
            number(row["point"]), number(row["low"]), number(row["high"]), int(row["seeds"]),
        )
        for row in read_table(out / "tables" / "aggregate.csv")
    }  # fmt: skip


def write_round_sweep(outputs: Path) -> Path:
    """30 runs: 3 frameworks, 2 environments, 5 seeds; returns and speeds are round numbers."""
    for env, high in (("cartpole", 480.0), ("acrobot", -90.0)):
        for framework, sps in zip(FRAMEWORKS, (10_000.0, 20_000.0, 30_000.0), strict=True):
            for seed in range(1, 6):
                write_run(outputs, env, framework, seed, final=high + seed, sps=sps + 100 * seed)
    return outputs
