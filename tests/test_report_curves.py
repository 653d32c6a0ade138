"""Learning curves of a report: their cells, their time, and runs that are not finished."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.commands.report.analysis import analyse
from ppo_bench.commands.report.charts import figures
from ppo_bench.commands.report.curves import CELLS, curves
from ppo_bench.commands.report.database import open_database
from ppo_bench.commands.report.groups import sort_runs
from tests.reports import aggregates, read_table, report
from tests.synthetic import write_run, write_sweep
from tests.training import rows

BASELINE = "torch_eager"


def test_unfinished_runs_are_in_the_curves_and_in_no_comparison(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager", "jax_xla"))
    longer = {"config.total_timesteps": 200 * 512}
    running = write_run(tmp_path / "o", "cartpole", "jax_xla", 6, 50, finished=False, changes=longer)
    (running / "error.txt").write_text("learning diverged\n")
    none = write_run(tmp_path / "o", "cartpole", "jax_xla", 7, 0, finished=False, changes=longer)
    (none / "error.txt").write_text("the disk is full\n")
    code, _, errors = report(capfd, tmp_path / "o")
    assert code == 0
    assert f"unfinished runs, which only the curves show: {running} (learning diverged)" in errors
    assert f"left out: {none}: the disk is full" in errors
    out = tmp_path / "o" / "report"
    assert aggregates(out)["cartpole", "jax_xla", "steady_sps"][3] == 5
    (last,) = [row for row in read_table(out / "tables" / "runs.csv") if row["seed"] == "6"]
    assert last["state"] == "unfinished"
    assert int(last["steps"]) == 50 * 512
    database = open_database([str(tmp_path / "o")])
    runs = [run for run in database.runs if run.framework == "jax_xla"]
    (drawn,) = curves(database.connection, [runs], "global_step")
    (own,) = [k for k, run in enumerate(runs) if run.seed == 6]
    assert np.isfinite(drawn.runs[own]).sum() == CELLS // 4
    returns = [row["return"] for row in rows(running, "episodes")]
    assert abs((runs[own].recent_return_mean or 0) - np.mean(returns[-100:])) < 1e-9


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
        (drawn,) = curves(database.connection, [database.runs], axis)
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
            row = {"iteration": k, "global_step": k * 512, "wall_seconds": compiled + k, "sps": 512.0, "episodes": 1}
            lines.append(json.dumps(row | {"episodic_return": float(k)}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        if (folder / "result.json").exists():
            result = json.loads((folder / "result.json").read_text())
            (folder / "result.json").write_text(json.dumps(result | {"compile_seconds": compiled}))
    database = open_database([str(tmp_path / "o")])
    (drawn,) = curves(database.connection, [database.runs], "training_seconds")
    np.testing.assert_allclose(drawn.x, np.arange(CELLS) + 0.5)
    known = np.arange(1.0, CELLS + 1)
    np.testing.assert_allclose(drawn.mean[:50], known[:50])
    assert np.isnan(drawn.mean[50:]).all()
    assert sorted(np.isfinite(drawn.runs).sum(1)) == [50, 100, 100]
    np.testing.assert_allclose(drawn.runs[np.isfinite(drawn.runs).all(1)], [known, known])


def test_a_resumed_run_has_compiled_again_only_in_the_rows_after_it(tmp_path: Path) -> None:
    """Compiled for 10 s at first, and for 30 s after iteration 50. A result of an older version has only the sum."""
    folder = write_run(tmp_path / "o", "cartpole", "jax_xla", 1, 100)
    lines = []
    for k in range(1, 101):
        row = {"iteration": k, "global_step": k * 512, "wall_seconds": 10.0 + k + 30.0 * (k > 50), "sps": 512.0}
        lines.append(json.dumps(row | {"episodes": 1, "episodic_return": 1.0}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    result = json.loads((folder / "result.json").read_text()) | {"compile_seconds": 40.0}
    for recorded in ({"recompile_seconds": {"50": 30.0}}, {}):
        (folder / "result.json").write_text(json.dumps(result | recorded))
        query = "select training_seconds from metrics order by iteration"
        seconds = [row[0] for row in open_database([str(tmp_path / "o")]).connection.execute(query).fetchall()]
        assert min(seconds) >= 0.0
        assert seconds[50:] == [float(k) for k in range(51, 101)]
        assert (seconds[:50] == [float(k) for k in range(1, 51)]) == bool(recorded)


def test_losses_evaluations_and_info_are_drawn_where_runs_have_them(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = write_run(tmp_path / "runs", seed=seed, iterations=4)
        lines = rows(folder)
        for row in lines:
            evaluated = row["iteration"] % 2 == 0
            row |= {"entropy": 1.0 / row["iteration"], "info_is_success": seed / 2 if evaluated else None}
            row |= {"evaluation_return_greedy": 100.0 * row["iteration"] if evaluated else None}
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        result = json.loads((folder / "result.json").read_text())
        result |= {"evaluation_return_greedy": 400.0, "info": {"is_success": seed / 2}}
        (folder / "result.json").write_text(json.dumps(result))
    write_run(tmp_path / "runs", env="acrobot", iterations=4)
    database = open_database([str(tmp_path / "runs")])
    assert database.drawn[:3] == ["evaluation_return_greedy", "info_is_success", "approx_kl"]
    found = figures(analyse(sort_runs(database.runs), BASELINE), database)
    of = {figure.title: figure for figure in found if figure.section == "training"}
    titles = [chart.title for chart in of["cartpole"].charts]
    losses = ["approx kl", "clip fraction", "entropy", "explained variance", "policy loss", "value loss"]
    assert titles == ["evaluation return greedy", "info is success", *losses]
    assert [chart.title for chart in of["acrobot"].charts] == losses
    greedy, success, entropy = (of["cartpole"].charts[k].series[0].curve.mean for k in (0, 1, 4))  # type: ignore[union-attr]
    # Four iterations over a grid of a hundred cells: evaluated at the second and the fourth.
    np.testing.assert_allclose(greedy[[49, 99]], [200, 400])
    assert np.isnan(greedy[48])
    np.testing.assert_allclose(success[99], 0.75)
    np.testing.assert_allclose(entropy[[24, 49, 74, 99]], [1, 1 / 2, 1 / 3, 1 / 4])
