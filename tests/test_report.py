"""`ppo_bench.report`: its output from run folders, complete ones and damaged ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reports import aggregates, read_table, report
from tests.synthetic import FRAMEWORKS, write_run, write_sweep
from tests.training import ROOT, rows

COLUMNS = ["env", "algorithm", "framework", "metric", "point", "low", "high", "seeds"]


def test_a_sweep_becomes_a_report(sweep: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "report"
    code, printed, errors = report(capfd, sweep, "--out", out, "--png")
    assert code == 0
    assert errors.count("\n") == 1
    assert "few finished seeds: the bootstrap's intervals are too narrow" in errors
    assert "acrobot torch_eager (5)" in errors
    assert printed.splitlines()[-1] == str(out / "report.html")
    assert {path.name for path in out.iterdir()} == {"report.html", "figures", "tables"}
    with open(out / "tables" / "aggregate.csv") as file:
        assert file.readline() == ",".join(COLUMNS) + "\n"
    found = aggregates(out)
    for env, high in (("cartpole", 480.0), ("acrobot", -90.0)):
        for framework in FRAMEWORKS:
            point, low, upper, seeds = found[env, framework, "final_return_mean"]
            assert abs(point - (high + 3)) < 1e-12  # of high + 1, ..., high + 5
            # Student's: 2.776 (t of 4 degrees at 97.5%) standard errors of sqrt(2.5 / 5).
            assert abs(point - low - 2.776445 * 0.5**0.5) < 1e-6
            assert abs(upper - point - 2.776445 * 0.5**0.5) < 1e-6
            assert seeds == 5
            assert abs(found[env, framework, "final_return_iqm"][0] - (high + 3)) < 1e-12
            if framework != "torch_eager":
                assert abs(found[env, framework, "difference_in_margins"][0]) < 1e-12
                assert found[env, framework, "difference_in_margins"][3] == 5
                assert found[env, framework, "probability_of_improvement"][0] == 0.5
    score = (-87 + 499.1) / (-100 + 499.1)
    assert abs(found["acrobot", "jax_xla", "normalised_score"][0] - score) < 1e-12
    assert abs(found["all", "jax_xla", "normalised_score_mean"][0] - ((483 - 22.2) / (475 - 22.2) + score) / 2) < 1e-12
    for figure in ("learning_01_acrobot", "learning_02_cartpole", "speed_02_cartpole", "comparisons", "returns"):
        assert (out / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (out / "figures" / f"{figure}.svg").read_text()
    for table in ("aggregate", "returns", "speed", "equivalence", "over_envs", "runs"):
        assert (out / "tables" / f"{table}.csv").exists()


@pytest.mark.slow
def test_charts_of_an_older_report_go_and_other_files_stay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for env in ("acrobot", "cartpole"):
        write_run(tmp_path / "o", env)
    write_run(tmp_path / "o", "cartpole", "jax_xla")
    assert report(capfd, tmp_path / "o", "--out", tmp_path / "r", "--png")[0] == 0
    assert (tmp_path / "r" / "figures" / "comparisons.png").exists()
    (tmp_path / "r" / "figures" / "mine.png").touch()
    for folder in (tmp_path / "o").glob("default/cartpole-*"):
        shutil.rmtree(folder)
    assert report(capfd, tmp_path / "o", "--out", tmp_path / "r", "--png")[0] == 0
    names = {path.name for path in (tmp_path / "r" / "figures").iterdir()}
    assert {"learning_01_acrobot.png", "mine.png"} <= names
    assert not [name for name in names if "cartpole" in name or "comparisons" in name]


def test_a_column_with_quotes_is_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "o", iterations=3)
    named = [row | {'info_a"b': 0.5} for row in rows(folder)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    assert report(capfd, tmp_path / "o")[0] == 0
    assert "info_a" in (tmp_path / "o" / "report" / "report.html").read_text()


def test_speeds_and_speedups_are_those_of_the_runs(
    sweep: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report(capfd, sweep, "--out", tmp_path / "r")[0] == 0
    found = aggregates(tmp_path / "r")
    results: dict[str, list[dict[str, Any]]] = {}
    for path in sweep.rglob("cartpole*/*/result.json"):
        result = json.loads(path.read_text())
        results.setdefault(result["framework"], []).append(result)
    for framework in ("torch_compile", "jax_xla"):
        ours, theirs = results[framework], results["torch_eager"]
        expected = np.mean([r["steady_sps"] for r in ours]) / np.mean([r["steady_sps"] for r in theirs])
        point, low, high, _ = found["cartpole", framework, "speedup_steady_sps"]
        assert abs(point - expected) < 1e-12
        assert low < point < high
    assert ("cartpole", "torch_eager", "compile_seconds") not in found
    assert found["cartpole", "torch_compile", "compile_seconds"][0] == 12.0
    assert ("cartpole", "torch_eager", "speedup_steady_sps") not in found
    assert report(capfd, sweep, "--out", tmp_path / "s", "--baseline", "jax_xla")[0] == 0
    turned = aggregates(tmp_path / "s")["cartpole", "torch_eager", "speedup_steady_sps"][0]
    assert abs(turned * found["cartpole", "jax_xla", "speedup_steady_sps"][0] - 1) < 1e-12


def test_the_summary_says_how_fast_each_is_and_whether_the_same_is_learned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    finals = {"torch_eager": 480.0, "torch_compile": 481.0, "jax_xla": 300.0}
    for framework, final in finals.items():
        for seed in range(1, 6):
            shift = 6 - seed if framework == "torch_compile" else seed
            write_run(tmp_path / "o", "cartpole", framework, seed, final=final + shift)
    code, printed, _ = report(capfd, tmp_path / "o", "--title", "Mine & <yours>")
    assert code == 0
    head, *lines, path = printed.splitlines()
    assert path == str(tmp_path / "o" / "report" / "report.html")
    assert "<h1>Mine &amp; &lt;yours&gt;</h1>" in Path(path).read_text()
    assert head.split()[:4] == ["env", "algorithm", "framework", "seeds"]
    assert [line.split()[:5] for line in lines] == [
        ["cartpole", "ppo", "torch_eager", "5", "483.0"],
        ["cartpole", "ppo", "torch_compile", "5", "484.0"],
        ["cartpole", "ppo", "jax_xla", "5", "303.0"],
    ]
    assert [line.split()[-1] for line in lines[1:]] == ["equivalent", "different"]
    table = tmp_path / "o" / "report" / "tables" / "equivalence.csv"
    (compile_row, jax_row) = read_table(table)
    assert [row["difference [90%]"] for row in (compile_row, jax_row)] == ["1.0", "-180.0"]
    # 5% of the distance between the 22.2 of random play and the 475 that count as solved.
    assert abs(float(compile_row["margin"]) - 0.05 * (475 - 22.2)) < 1e-9
    report(capfd, tmp_path / "o", "--margin", "0.5")
    assert read_table(table)[1]["verdict"] == "equivalent, though different"


@pytest.mark.slow
def test_runs_without_an_end_or_an_episode_are_reported_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "o", finished=False)
    silent = write_run(tmp_path / "o", "acrobot")
    result = json.loads((silent / "result.json").read_text())
    (silent / "result.json").write_text(json.dumps(result | {"final_return_mean": None, "episodes": 0}))
    rows_without = [row | {"episodes": 0, "episodic_return": None} for row in rows(silent)]
    (silent / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_without))
    assert report(capfd, tmp_path / "o", "--png")[0] == 0
    found = read_table(tmp_path / "o" / "report" / "tables" / "summary.csv")
    assert [(row["env"], row["seeds"], row["final return"]) for row in found] == [
        ("acrobot", "1", ""),
        ("cartpole", "0", ""),
    ]


def test_the_report_imports_nothing_that_trains() -> None:
    script = (
        "import sys, ppo_bench.commands.report.__main__, ppo_bench.commands.query; "
        "print([m for m in ('torch', 'jax', 'hydra', 'omegaconf', 'gymnasium', 'ppo_bench.runners', "
        "'ppo_bench.runs.train', 'ppo_bench.configuration.config') if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_a_margin_is_the_baselines_own_where_the_task_has_no_scale(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is compared: were it of the larger mean, who learns ten times more would widen it."""
    for framework, final in (("torch_eager", 40.0), ("jax_xla", 400.0)):
        for seed in range(1, 6):
            write_run(tmp_path / "o", "unknown", framework, seed, final=final + seed)
    assert report(capfd, tmp_path / "o")[0] == 0
    (row,) = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert abs(float(row["margin"]) - 0.05 * 43) < 1e-9


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), seeds=2)
    for name in ("a", "b"):
        assert report(capfd, tmp_path / "o", "--out", tmp_path / name, "--png")[0] == 0
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    assert len(files) > 15
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path
