"""Commands of runs that are complete already, and what is said of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.training import RUN, learnt, snapshot


def test_a_finished_run_is_reported_and_not_touched(copied: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = snapshot(copied)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    printed = capfd.readouterr()
    mean = json.loads((copied / "result.json").read_text())["final_return_mean"]
    assert printed.out.splitlines()[-1] == str(copied)
    assert printed.err.splitlines() == [
        f"ppo_bench: {copied} is done: final_return_mean {mean:.2f}; rerun=true trains again in a new folder"
    ]
    assert snapshot(copied) == before


def test_a_rerun_trains_afresh_beside_the_run_and_learns_the_same(
    copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(copied)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}", "rerun=true"]) == 0
    beside = copied.with_name("seed1-rerun2")
    assert capfd.readouterr().out.splitlines()[-1] == str(beside)
    assert learnt(beside) == learnt(copied)
    assert snapshot(copied) == before


@pytest.mark.parametrize("complete", [True, False], ids=["finished", "resumed"])
def test_versions_and_hardware_that_differ_are_named(
    complete: bool, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((copied / "run.json").read_text())
    run["versions"]["torch"], run["hardware"]["cores"] = "1.0.0", 999
    (copied / "run.json").write_text(json.dumps(run))
    if not complete:
        (copied / "result.json").unlink()
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert "torch: 1.0.0 -> 2." in warning
    assert f"cores: 999 -> {os.cpu_count()}" in warning


@pytest.mark.parametrize(("name", "code"), [("result.json", 2), ("run.json", 0)])
def test_a_damaged_file_of_a_finished_run_is_named(
    name: str, code: int, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copied / name).write_text("{")
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == code
    assert f"{copied / name} is damaged" in capfd.readouterr().err.splitlines()[-1]
