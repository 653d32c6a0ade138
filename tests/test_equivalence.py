"""The comparison of frameworks: real processes agree, and a difference is found and counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.cli import exit_code
from ppo_bench.equivalence import Outcome, difference, main
from tests.runners import FRAMEWORKS

SMALL = ["env=cartpole", "backend=gymnasium", "total_timesteps=4096"]


def outcome(actions: list[list[float]], parameters: list[float], dtype: type = np.int64) -> Outcome:
    return Outcome(np.array(actions, dtype), {}, {"params.a": np.array(parameters)}, None)


def test_differing_actions_are_counted_and_the_first_is_found() -> None:
    found = difference(outcome([[0, 1], [1, 0]], [3.0, 4.0]), outcome([[0, 1], [0, 1]], [3.0, 4.5]), 0.0)
    assert (found.actions, found.first) == (2, 2)
    assert found.parameters == pytest.approx(0.5 / 5.0)


def test_continuous_actions_count_once_a_vector_and_only_beyond_the_tolerance() -> None:
    leader = Outcome(np.zeros((2, 1, 2)), {}, {"params.a": np.ones(1)}, None)
    other = Outcome(np.array([[[1e-6, 0.0]], [[0.1, 0.1]]]), {}, {"params.a": np.ones(1)}, None)
    assert difference(leader, other, 1e-4)[:2] == (1, 1)


@pytest.mark.parametrize("mode", ["lockstep", "free"])
def test_every_framework_takes_the_same_actions(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "precision=float64", f"mode={mode}", f"outputs={tmp_path}"]
    assert exit_code(main, arguments) == 0
    (report,) = tmp_path.glob("equivalence/*/equivalence.json")
    found = json.loads(report.read_text())
    assert {found["leader"], *found["frameworks"]} == set(FRAMEWORKS)
    for framework in found["frameworks"].values():
        assert framework["identical_steps"] == 4096
        assert framework["differing_actions"] == 0
        assert framework["largest_parameter_distance"] < 1e-10
        assert len(framework["parameter_distances"]) == 8
    assert "the frameworks do the same" in capsys.readouterr().out
    assert (report.parent / "equivalence.svg").stat().st_size > 1000


def test_free_runs_that_part_are_exit_code_1(tmp_path: Path) -> None:
    # A learning rate 200 times too large amplifies the rounding of float32 within some thousand steps.
    free = [*SMALL, "mode=free", "total_timesteps=40960", f"outputs={tmp_path}", "ppo.learning_rate=0.05"]
    assert exit_code(main, free) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mode=both", "mode=both: choose lockstep or free"),
        ("frameworks=torch_eager", "at least two"),
        ("frameworks=torch_eager,tensorflow", "framework=tensorflow: there is no such choice"),
    ],
)
def test_wrong_input_is_one_line(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [*SMALL, override]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
