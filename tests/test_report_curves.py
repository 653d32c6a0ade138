"""Learning curves of a report: their cells, their time, and runs that are not finished."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.commands.report.curves import CELLS, curves
from ppo_bench.commands.report.database import open_database
from tests.reports import aggregates, report, rows
from tests.synthetic import write_run, write_sweep


def test_unfinished_runs_are_in_the_curves_and_in_no_comparison(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager", "jax_xla"))
    longer = {"config.total_timesteps": 200 * 512}
    running = write_run(tmp_path / "o", "cartpole", "jax_xla", 6, 50, finished=False, changes=longer)
    code, _, errors = report(capfd, tmp_path / "o")
    assert code == 0
    assert f"unfinished runs, which only the curves show: {running} (25%)" in errors
    out = tmp_path / "o" / "report"
    assert aggregates(out)["cartpole", "jax_xla", "steady_sps"][3] == 5
    (last,) = [row for row in rows(out / "tables" / "runs.csv") if row["seed"] == "6"]
    assert last["state"] == "unfinished"
    assert int(last["steps"]) == 50 * 512
    database = open_database([str(tmp_path / "o")])
    numbers = [n for n, run in enumerate(database.runs) if run.framework == "jax_xla"]
    (drawn,) = curves(database.connection, [numbers], "global_step", seed=0, resamples=100)
    (own,) = [k for k, n in enumerate(numbers) if database.runs[n].seed == 6]
    assert np.isfinite(drawn.runs[own]).sum() == CELLS // 4
    returns = [json.loads(line)["return"] for line in (running / "episodes.jsonl").read_text().splitlines()]
    assert abs(database.runs[numbers[own]].recent_return_mean - np.mean(returns[-100:])) < 1e-9


def test_a_framework_without_a_finished_run_is_in_no_comparison_of_speeds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",), seeds=2)
    write_run(tmp_path / "o", "cartpole", "jax_xla", 1, 50, finished=False, changes={"config.total_timesteps": 102_400})
    report(capfd, tmp_path / "o")
    assert {framework for _, framework, _ in aggregates(tmp_path / "o" / "report")} == {"torch_eager"}


def test_a_curve_is_the_mean_of_episodes_in_its_cells(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "o", "cartpole", "torch_eager", 1, 200)
    lines = []
    for k in range(1, 201):
        ended, value = (3, 10.0) if k % 2 else (1, 50.0)
        if k > 100 and k % 4 > 1:
            ended, value = 0, None  # type: ignore[assignment]
        row = {"iteration": k, "global_step": k * 10, "wall_seconds": k / 2, "sps": 20.0, "episodes": ended}
        lines.append(json.dumps(row | {"episodic_return": value}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    database = open_database([str(tmp_path / "o")])
    for axis, end in (("global_step", 2000.0), ("training_seconds", 100.0)):
        (drawn,) = curves(database.connection, [[0]], axis, seed=0, resamples=100)
        np.testing.assert_allclose(drawn.x, (np.arange(CELLS) + 0.5) * end / CELLS)
        # Each cell has an odd and an even iteration: (3 * 10 + 1 * 50) / 4.
        np.testing.assert_allclose(drawn.runs[0, 1:48], 20.0)
        assert np.isfinite(drawn.runs[0]).all()


def test_curves_by_wall_time_leave_compilation_out(tmp_path: Path) -> None:
    """Two seeds of 100 s each, of which the first compiled for 50 s, and a third that has come half the way."""
    folders = [write_run(tmp_path / "o", "cartpole", "jax_xla", seed, 100, finished=seed < 3) for seed in (1, 2, 3)]
    for folder, compiled, iterations in zip(folders, (50.0, 10.0, 20.0), (100, 100, 50), strict=True):
        lines = []
        for k in range(1, iterations + 1):
            row = {"iteration": k, "global_step": k * 10, "wall_seconds": compiled + k, "sps": 10.0, "episodes": 1}
            lines.append(json.dumps(row | {"episodic_return": float(k)}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        if (folder / "result.json").exists():
            result = json.loads((folder / "result.json").read_text())
            (folder / "result.json").write_text(json.dumps(result | {"compile_seconds": compiled}))
    database = open_database([str(tmp_path / "o")])
    (drawn,) = curves(database.connection, [[0, 1, 2]], "training_seconds", seed=0, resamples=100)
    np.testing.assert_allclose(drawn.x, np.arange(CELLS) + 0.5)
    known = np.arange(1.0, CELLS + 1)
    np.testing.assert_allclose(drawn.band.mean[:50], known[:50])
    assert np.isnan(drawn.band.mean[50:]).all()
    assert sorted(np.isfinite(drawn.runs).sum(1)) == [50, 100, 100]
    np.testing.assert_allclose(drawn.runs[np.isfinite(drawn.runs).all(1)], [known, known])
