"""Comparisons in a report: which runs are compared, and warnings of differences between them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest

from tests.reports import aggregates, read_table, report
from tests.synthetic import FRAMEWORKS, write_run, write_sweep


def test_differences_of_hardware_versions_and_precision_are_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    changes = {"versions.torch": "2.12.0", "hardware.gpu": "H200", "execution.precision.tf32": True}
    for seed in range(1, 4):
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "runs that are compared differ in versions.torch: 2.13.0 in 5, 2.12.0 in 3 runs: cartpole" in errors
    assert "hardware.gpu: none in 5, H200 in 3 runs" in errors
    assert "execution.precision.tf32: False in 5, True in 3 runs" in errors
    assert "cover less than their 95%: cartpole torch_eager (83% at 5), cartpole jax_xla (74% at 3)" in errors
    page = (tmp_path / "o" / "report" / "report.html").read_text()
    assert "2.13.0 in 5, 2.12.0 in 3 runs" in page


def test_runs_with_other_hyperparameters_are_not_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager", "jax_xla"))
    for seed in range(1, 6):
        folder = f"default/cartpole-gymnasium-jax_xla-ffff0000/seed{seed}"
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, folder=folder, changes={"config.ppo.gamma": 0.9})
    _, printed, errors = report(capfd, tmp_path / "o")
    assert "cartpole was trained with 2 settings, which are not pooled: ppo.gamma" in errors
    assert "cartpole ppo.gamma=0.99  " in printed
    pairs = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert [(row["env"], row["framework"]) for row in pairs] == [("cartpole ppo.gamma=0.99", "jax_xla")]


def test_settings_of_one_environment_are_ranked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    by_gamma = {0.9: (10.0, 12.0, 14.0), 0.99: (30.0, 32.0, 34.0), 0.999: (31.0, 32.0, 36.0)}
    for gamma, finals in by_gamma.items():
        for seed, final in enumerate(finals, 1):
            folder = f"default/cartpole-gymnasium-torch_eager-{gamma}/seed{seed}"
            changes = {"config.ppo.gamma": gamma}
            write_run(tmp_path / "o", "cartpole", seed=seed, final=final, folder=folder, changes=changes)
    report(capfd, tmp_path / "o")
    found = read_table(tmp_path / "o" / "report" / "tables" / "returns.csv")
    assert [row["env"] for row in found] == [f"cartpole ppo.gamma={gamma}" for gamma in (0.999, 0.99, 0.9)]
    assert [float(row["mean"]) for row in found] == [33.0, 32.0, 12.0]
    assert not (tmp_path / "o" / "report" / "tables" / "over_envs.csv").exists()  # there is one environment


def test_versions_of_an_environment_are_settings_of_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version in ("CartPole-v0", "CartPole-v1"):
        changes = {"config.env.ids": {"gymnasium": version}}
        folder = f"default/cartpole-gymnasium-torch_eager-{version}/seed1"
        write_run(tmp_path / "o", "cartpole", folder=folder, changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "cartpole was trained with 2 settings, which are not pooled: env.id" in errors


def test_a_hyperparameter_that_only_some_settings_have_tells_them_apart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = itertools.product((1e-3, 2e-3), (0.9, 0.99), (0.1, 0.2), (None, 0.02))
    for place, chosen in enumerate(values):
        changes = dict(zip(("learning_rate", "gamma", "clip_coef", "target_kl"), chosen, strict=True))
        folder = f"default/cartpole-gymnasium-torch_eager-{place}/seed1"
        written = {f"config.ppo.{key}": value for key, value in changes.items()}
        write_run(tmp_path / "o", "cartpole", final=100.0 - place, folder=folder, changes=written)
    report(capfd, tmp_path / "o")
    found = read_table(tmp_path / "o" / "report" / "tables" / "returns.csv")
    assert [float(row["mean"]) for row in found] == [100.0 - place for place in range(16)]
    assert len({row["env"] for row in found}) == 16


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({"config.ppo.target_kl": 0.02}, {"ppo.target_kl=null", "ppo.target_kl=0.02"}),
        (
            {"config.algorithm": {"_target_": "mine.Mine", "name": "mine"}},
            {"algorithm.name=ppo", "algorithm.name=mine"},
        ),
        ({"config.env.max_episode_steps": 100}, {"env.max_episode_steps=unset", "env.max_episode_steps=100"}),
    ],
)
def test_what_only_one_setting_has_is_drawn_beside_the_default(
    changes: dict[str, object], labels: set[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "o", seed=seed)
        write_run(tmp_path / "o", seed=seed, folder=f"default/cartpole-other/seed{seed}", changes=changes)
    code, _, _ = report(capfd, tmp_path / "o", "--png")
    assert code == 0
    drawn = (tmp_path / "o" / "report" / "figures" / "learning_01_cartpole.svg").read_text()
    assert all(f">{label}</text>" in drawn for label in labels)
    found = read_table(tmp_path / "o" / "report" / "tables" / "summary.csv")
    assert {row["env"].removeprefix("cartpole ") for row in found} == labels


def test_executions_that_differ_are_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    for seed in range(1, 6):
        folder = f"default/cartpole-gymnasium-torch_eager-ffff0000/seed{seed}"
        changes = {"config.precision": "float64"}
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed, sps=5_000.0, folder=folder, changes=changes)
    report(capfd, tmp_path / "o")
    assert ("cartpole", "torch_eager precision=float64", "steady_sps") in aggregates(tmp_path / "o" / "report")


def test_a_machine_with_more_to_do_than_cores_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed, load in ((1, 2.4), (2, 3.5)):
        path = write_run(tmp_path / "o", seed=seed) / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"load_average": load}))
    _, _, errors = report(capfd, tmp_path / "o")
    (line,) = [line for line in errors.splitlines() if "more to do than it has cores" in line]
    assert "seed2 (3.5 on 2 cores)" in line
    assert "seed1" not in line


def test_frameworks_on_different_backends_are_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",))
    for seed in range(1, 6):
        changes = {"config.backend.name": "envpool", "config.env.ids": {"envpool": "CartPole-v1"}}
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    _, printed, errors = report(capfd, tmp_path / "o")
    assert "different backends, whose speeds differ too: cartpole (torch_eager on gymnasium, jax_xla on env" in errors
    assert "jax_xla · envpool  " in printed


def test_a_backend_that_the_baseline_lacks_is_warned_of_beside_one_that_it_has(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager", "jax_xla"))
    changes = {"config.backend.name": "jax", "config.env.ids": {"jax": "CartPole-v1"}}
    for seed in range(1, 6):
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, folder=f"default/jax/seed{seed}", changes=changes)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "whose speeds differ too: cartpole (torch_eager on gymnasium, jax_xla on jax)\n" in errors


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


def test_what_only_some_runs_have_is_no_label_of_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed, together in ((1, {}), (2, {}), (3, {"config.num_seeds": 2}), (4, {"config.num_seeds": 2})):
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=together)
    _, printed, errors = report(capfd, tmp_path / "o")
    assert "runs_at_once=2" in printed + errors
    assert "None" not in printed + errors


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


def test_two_environments_of_one_name_are_two_settings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for k, level in enumerate(("Easy", "Hard")):
        for seed in (1, 2):
            ids = {"config.env.ids": {"gymnasium": f"Starpilot{level}-v0"}}
            folder = f"{level}/seed{seed}"
            write_run(tmp_path / "o", "starpilot", seed=seed, final=10.0 - 5 * k, folder=folder, changes=ids)
    _, _, errors = report(capfd, tmp_path / "o")
    assert "claims to be the same run" not in errors
    assert "starpilot was trained with 2 settings, which are not pooled: env.id" in errors
    finals = aggregates(tmp_path / "o" / "report")
    of_level = {key[0]: value[0] for key, value in finals.items() if key[2] == "final_return_mean"}
    assert of_level == {"starpilot env.id=StarpilotEasy-v0": 10.0, "starpilot env.id=StarpilotHard-v0": 5.0}


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


def test_envs_on_different_backends_are_one_comparison(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), seeds=2)
    for framework in FRAMEWORKS:
        for seed in (1, 2):
            changes = {"config.backend.name": "envpool", "config.env.ids": {"envpool": "Acrobot-v1"}}
            write_run(tmp_path / "o", "acrobot", framework, seed, changes=changes)
    assert report(capfd, tmp_path / "o")[0] == 0
    over = read_table(tmp_path / "o" / "report" / "tables" / "over_envs.csv")
    assert [(row["framework"], row["seeds"]) for row in over] == [(framework, "2") for framework in FRAMEWORKS]


def test_a_final_return_that_holds_early_episodes_is_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "o", "cartpole", iterations=60)  # of 8 episodes each
    assert "early ones too" in report(capfd, tmp_path / "o")[2]
    write_run(tmp_path / "long", "cartpole", iterations=63)
    assert "early ones too" not in report(capfd, tmp_path / "long")[2]
