"""The command `check`: its lines and its exit codes."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from ppo_bench.commands import check
from ppo_bench.common.cli import exit_code

pytestmark = pytest.mark.slow

ENDS = "episodes end within the play"


def test_the_command_prints_a_line_for_each_rule_and_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", "--num-steps", "300"]) == 0
    out, err = capfd.readouterr()
    *rules, verdict = out.splitlines()
    assert verdict == "CartPole-v1 on gymnasium keeps the contract"
    assert len(rules) == 15
    assert all(line.startswith("ok ") for line in rules)
    assert err == ""


def test_the_command_fails_if_a_rule_is_broken(capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--num-steps", "2"]  # no episode is over by then
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", *few]) == 1
    out, _ = capfd.readouterr()
    assert f"FAIL  {ENDS}" in out
    assert out.splitlines()[-1] == "CartPole-v1 on gymnasium breaks 1 of 15 rules"


class Crashes(CartPoleEnv):
    """CartPole that raises in its thirtieth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 30:
            raise RuntimeError("the pole\nbroke")
        return super().step(action)


gymnasium.register("Crashes-v0", "tests.test_check_command:Crashes")


def test_what_an_environment_raises_is_shown_and_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env.id=tests.test_check_command:Crashes-v0"]) == 1
    out, err = capfd.readouterr()
    assert out == "FAIL  it raises in random play: RuntimeError: the pole broke\n"
    assert "in step\n    raise RuntimeError" in err
