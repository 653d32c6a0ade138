"""Comparisons in a report: which runs are compared, and warnings of differences between them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.reports import aggregates, read_table, report
from tests.synthetic import write_run, write_sweep


def test_differences_of_hardware_versions_and_precision_are_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    changes = {"versions.torch": "2.12.0", "hardware.gpu": "H200", "execution.precision.tf32": True}
    for seed in range(1, 4):
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "runs that are compared differ in versions.torch: 2.13.0 in 5, 2.12.0 in 3 runs: cartpole" in errors
    assert "hardware.gpu: None in 5, H200 in 3 runs" in errors
    assert "execution.precision.tf32: False in 5, True in 3 runs" in errors
    assert "too narrow, and a single seed has none: cartpole torch_eager (5), cartpole jax_xla (3)" in errors
    page = (tmp_path / "o" / "report" / "report.html").read_text()
    assert "2.13.0 in 5, 2.12.0 in 3 runs" in page


def test_runs_with_other_hyperparameters_are_not_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager", "jax_xla"))
    for seed in range(1, 6):
        folder = f"default/cartpole-gymnasium-jax_xla-ffff0000/seed{seed}"
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, folder=folder, changes={"config.ppo.gamma": 0.9})
    _, printed, _ = report(capfd, tmp_path / "o")
    assert "cartpole ppo.gamma=0.99  " in printed
    pairs = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert [(row["env"], row["framework"]) for row in pairs] == [("cartpole ppo.gamma=0.99", "jax_xla")]


def test_executions_that_differ_are_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    for seed in range(1, 6):
        folder = f"default/cartpole-gymnasium-torch_eager-ffff0000/seed{seed}"
        changes = {"config.precision": "float64"}
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed, sps=5_000.0, folder=folder, changes=changes)
    report(capfd, tmp_path / "o")
    assert ("cartpole", "torch_eager precision=float64", "steady_sps") in aggregates(tmp_path / "o" / "report")
    found = read_table(tmp_path / "o" / "report" / "tables" / "runs.csv")
    assert sorted({row["precision"] for row in found}) == ["float32", "float64"]


def test_frameworks_on_different_backends_are_warned_of_and_their_seeds_are_no_pairs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A seed begins other episodes there."""
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    for seed in range(1, 6):
        changes = {"config.backend.name": "envpool", "config.env.ids": {"envpool": "CartPole-v1"}}
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "runs that are compared differ in backend: gymnasium in 5, envpool in 5 runs: cartpole" in errors
    (row,) = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert (row["framework"], row["test"]) == ("jax_xla", "Welch")


def test_seeds_of_one_program_are_one_measurement_of_its_speed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in range(1, 6):
        started = {"started": "2026-01-01T00:00:00+00:00", "config.num_seeds": 5}
        folder = write_run(tmp_path / "o", "cartpole", "jax_xla", seed, final=400.0 + seed, changes=started)
        about = json.loads((folder / "result.json").read_text())
        speeds = {"steady_sps": 30_000.0, "mean_sps": 20_000.0, "wall_seconds": 10.0, "compile_seconds": 5.0}
        (folder / "result.json").write_text(json.dumps(about | speeds))
    report(capfd, tmp_path / "o")
    found = aggregates(tmp_path / "o" / "report")
    point, low, high, programs = found["cartpole", "jax_xla", "steady_sps"]
    assert (point, programs) == (30_000.0, 1)
    assert math.isnan(low)
    assert math.isnan(high)
    assert found["cartpole", "jax_xla", "final_return_mean"][3] == 5


def test_speeds_of_one_run_beside_those_of_several_at_once_are_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whose names do not say so, if each has a framework of its own."""
    for seed in range(1, 4):
        write_run(tmp_path / "o", seed=seed, changes={"config.tuning": {"follow_caller": False}})
        changes = {"config.num_seeds": 3, "config.tuning": {"follow_caller": True}}
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "differ in runs_at_once: 1 in 3, 3 in 3 runs: cartpole" in errors
    assert "differ in tuning.follow_caller: False in 3, True in 3 runs: cartpole" in errors


def test_what_ran_on_a_gpu_is_not_pooled_with_what_ran_on_a_cpu(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",), seeds=2)
    for seed in (1, 2):  # of the same configuration, device=auto
        changes = {"execution.device": "cuda:0"}
        write_run(tmp_path / "o", seed=seed, sps=90_000.0, folder=f"gpu/seed{seed}", changes=changes)
    _, printed, errors = report(capfd, tmp_path / "o")
    assert "claims to be the same run" not in errors
    assert "torch_eager device=cuda  " in printed
    assert aggregates(tmp_path / "o" / "report")["cartpole", "torch_eager device=cpu", "steady_sps"][3] == 2


def test_a_single_run_is_not_said_to_learn_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2, 3):
        for framework in ("torch_eager", "jax_xla"):
            write_run(tmp_path / "o", "cartpole", framework, seed, final=480.0 + seed)
    write_run(tmp_path / "o", "cartpole", "torch_compile", 1, final=60.0)
    report(capfd, tmp_path / "o")
    found = read_table(tmp_path / "o" / "report" / "tables" / "summary.csv")
    verdicts = {row["framework"]: row["return"] for row in found}
    assert verdicts == {"torch_eager": "", "torch_compile": "", "jax_xla": "equivalent"}


def test_the_same_seeds_are_compared_one_by_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finals = [100.0, 480.0, 250.0]  # far apart, but the same in both
    for seed, final in enumerate(finals, 1):
        write_run(tmp_path / "o", seed=seed, final=final)
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, final=final)
    table = tmp_path / "o" / "report" / "tables" / "equivalence.csv"
    report(capfd, tmp_path / "o")
    assert [(row["verdict"], row["test"]) for row in read_table(table)] == [("equivalent", "paired")]
    write_run(tmp_path / "o", seed=4, final=300.0)
    report(capfd, tmp_path / "o")
    assert [(row["verdict"], row["test"]) for row in read_table(table)] == [("undecided", "Welch")]


def test_a_machine_with_more_to_do_than_cores_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed, load in ((1, 2.4), (2, 3.5)):
        path = write_run(tmp_path / "o", seed=seed) / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"load_average": load}))
    _, _, errors = report(capfd, tmp_path / "o")
    (line,) = [line for line in errors.splitlines() if "more to do than it has cores" in line]
    assert "seed2 (3.5 on 2 cores)" in line
    assert "seed1" not in line
