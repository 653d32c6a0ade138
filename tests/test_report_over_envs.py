"""Settings of hyperparameters compared over several environments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.reports import read_table, report
from tests.synthetic import write_run

FINALS: dict[tuple[str, float], tuple[float, ...]] = {
    ("alpha", 0.9): (8.0, 10.0),
    ("alpha", 0.99): (0.0, 2.0),
    ("beta", 0.9): (100.0, 0.0),
    ("beta", 0.99): (50.0,) * 2,
}
"""Final returns by environment and discount; the ranges are 0 to 10 and 0 to 100."""


def written(outputs: Path, finals: Mapping[tuple[str, float], tuple[float, ...]]) -> Path:
    for (env, gamma), values in finals.items():
        for seed, final in enumerate(values, 1):
            folder = f"default/{env}-{gamma}/seed{seed}"
            write_run(outputs, env, seed=seed, final=final, folder=folder, changes={"config.ppo.gamma": gamma})
    return outputs


def test_settings_are_compared_over_environments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By hand: scores 0.8, 1, 1, 0 and 0, 0.2, 0.5, 0.5, of which the middle two count."""
    outputs = written(tmp_path / "o", FINALS)
    _, printed, _ = report(capfd, outputs)
    best, other = read_table(outputs / "report" / "tables" / "settings_over_envs.csv")
    assert (best["setting"], best["envs"], best["runs"]) == ("ppo.gamma=0.9", "2", "4")
    assert float(best["score, IQM"]) == pytest.approx(0.9)
    assert float(other["score, IQM"]) == pytest.approx(0.35)
    assert best["above the first"] == ""
    assert float(other["above the first"]) == pytest.approx((0.0 + 0.5) / 2)  # in alpha never, in beta half the time
    assert "2 settings over 2 environments, torch_eager: best first" in printed
    assert "Settings over environments" in (outputs / "report" / "report.html").read_text()


def test_only_environments_that_several_settings_share_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A third environment has one of them, and a third setting is in one environment alone."""
    further = {("gamma", 0.9): (1.0, 2.0), ("alpha", 0.5): (3.0, 4.0)}
    outputs = written(tmp_path / "o", FINALS | further)
    report(capfd, outputs)
    found = read_table(outputs / "report" / "tables" / "settings_over_envs.csv")
    assert [(row["setting"], row["envs"], row["runs"]) for row in found] == [
        ("ppo.gamma=0.9", "2", "4"),
        ("ppo.gamma=0.99", "2", "4"),
    ]


def test_a_further_setting_of_one_environment_hides_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It adds a key to the labels of that environment."""
    outputs = written(tmp_path / "o", FINALS)
    changes = {"config.ppo.gamma": 0.99, "config.ppo.learning_rate": 1e-3}
    write_run(outputs, "alpha", final=3.0, folder="default/alpha-rate/seed1", changes=changes)
    report(capfd, outputs)
    found = read_table(outputs / "report" / "tables" / "settings_over_envs.csv")
    assert [(row["setting"], row["envs"]) for row in found] == [("ppo.gamma=0.9", "2"), ("ppo.gamma=0.99", "2")]


def test_one_environment_has_no_such_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = written(tmp_path / "o", {pair: values for pair, values in FINALS.items() if pair[0] == "alpha"})
    report(capfd, outputs)
    assert not (outputs / "report" / "tables" / "settings_over_envs.csv").exists()
    assert (outputs / "report" / "tables" / "ranking.csv").exists()


def test_a_further_length_of_one_environment_hides_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Environments have lengths of their own, and one has a short run besides: lengths tell no settings apart."""
    outputs = tmp_path / "o"
    for (env, gamma), values in FINALS.items():
        for seed, final in enumerate(values, 1):
            folder, iterations = f"default/{env}-{gamma}/seed{seed}", 200 if env == "alpha" else 100
            changes = {"config.ppo.gamma": gamma}
            write_run(outputs, env, "torch_eager", seed, iterations, final=final, folder=folder, changes=changes)
    write_run(outputs, "alpha", iterations=40, final=9.0, folder="default/alpha-short/seed1")
    report(capfd, outputs)
    found = read_table(outputs / "report" / "tables" / "settings_over_envs.csv")
    assert [(row["setting"], row["envs"], row["runs"]) for row in found] == [
        ("ppo.gamma=0.9", "2", "4"),
        ("ppo.gamma=0.99", "2", "4"),
    ]


def test_sweeps_over_other_environments_have_tables_of_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outputs = written(tmp_path / "o", FINALS)
    for env, rate in itertools.product(("delta", "epsilon"), (1e-3, 1e-4)):
        changes = {"config.ppo.learning_rate": rate}
        for seed in (1, 2):
            folder = f"default/{env}-{rate}/seed{seed}"
            write_run(outputs, env, seed=seed, final=seed * rate, folder=folder, changes=changes)
    _, printed, _ = report(capfd, outputs)
    found = read_table(outputs / "report" / "tables" / "settings_over_envs.csv")
    assert [row["setting"] for row in found] == [
        *("ppo.gamma=0.9", "ppo.gamma=0.99", "ppo.learning_rate=0.001", "ppo.learning_rate=0.0001")
    ]
    assert printed.count("2 settings over 2 environments, torch_eager: best first") == 2
