"""Groups of runs that a report compares with each other, and the tests that do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports import read_table, report
from tests.synthetic import write_run


def test_seeds_of_one_program_are_no_baseline_of_seeds_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The speed of a seed in a program of four is a fourth of the program's."""
    for seed in range(1, 5):
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed)
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed)
        folder = f"default/cartpole-together/seed{seed}"
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, folder=folder, changes={"config.num_seeds": 4})
    report(capfd, tmp_path / "o", "--baseline", "jax_xla")
    pairs = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert [(row["framework"], row["compared with"]) for row in pairs] == [("torch_eager", "jax_xla")]


def test_own_code_that_has_changed_between_seeds_is_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed, digest in enumerate(("0123", "0123", "4567"), 1):
        write_run(tmp_path / "o", "cartpole", seed=seed, changes={"own_code": {"mine": digest}})
    _, _, errors = report(capfd, tmp_path / "o")
    assert "runs that are compared differ in own_code.mine: 0123 in 2, 4567 in 1 runs: cartpole" in errors


def test_equal_seeds_on_another_backend_are_no_pairs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A seed begins other episodes there."""
    for seed in (1, 2, 3):
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed)
        changes = {"config.backend.name": "envpool", "config.env.ids": {"envpool": "CartPole-v1"}}
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, changes=changes)
    report(capfd, tmp_path / "o")
    (row,) = read_table(tmp_path / "o" / "report" / "tables" / "equivalence.csv")
    assert (row["framework"], row["test"]) == ("jax_xla · envpool", "Welch")
