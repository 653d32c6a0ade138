"""The command `check`: its lines, its table of all environments, its exit codes."""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from ppo_bench.commands import check
from ppo_bench.common.cli import exit_code
from tests.refusals import assert_one_line

pytestmark = pytest.mark.slow

ENDS = "episodes end within the play"


def test_the_command_prints_a_line_for_each_rule_and_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", "--num-steps", "300"]) == 0
    out, err = capfd.readouterr()
    *rules, verdict = out.splitlines()
    assert verdict == "CartPole-v1 on gymnasium keeps the contract"
    assert len(rules) == 16
    assert all(line.startswith("ok ") for line in rules)
    assert err == ""


def test_the_command_fails_if_a_rule_is_broken(capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--num-steps", "2"]  # no episode is over by then
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", *few]) == 1
    out, _ = capfd.readouterr()
    assert f"FAIL  {ENDS}" in out
    assert out.splitlines()[-1] == "CartPole-v1 on gymnasium breaks 1 of 16 rules"


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


def test_all_is_a_line_for_each_pair_in_order_whatever_the_number_of_jobs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [
        ("acrobot", "gymnasium", "Acrobot-v1"),
        ("cartpole", "envpool", "CartPole-v1"),
        ("no_such", "device", "None"),
    ]
    monkeypatch.setattr(check, "offered", lambda: pairs)
    assert check.main(["--all", "--jobs", "2", "--num-steps", "300"]) == 1
    header, *rows, verdict = capsys.readouterr().out.splitlines()
    assert header.split() == ["env", "backend", "id", "s", "verdict"]
    assert [tuple(row.split()[:3]) for row in rows] == pairs
    assert f"FAIL: {ENDS}" in rows[0]  # no episode of Acrobot is over after 300 steps at random
    assert rows[1].endswith("ok, 16 rules")
    assert "skipped: there is no env/no_such" in rows[2]
    assert verdict == "1 broken; 1 were skipped"


def test_all_compares_with_gymnasium_what_gymnasium_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("cartpole", "envpool", "CartPole-v1"), ("minatar_breakout", "device", "minatar-breakout")]
    monkeypatch.setattr(check, "offered", lambda: pairs)
    assert check.main(["--all", "--distribution", "--num-episodes", "100", "--num-steps", "300"]) == 0
    _, *rows, verdict = capsys.readouterr().out.splitlines()
    assert [row.split()[-2] for row in rows] == ["18", "16"]
    assert verdict == "every environment that was checked keeps the contract"


def verdict_of(pair: check.Pair, options: argparse.Namespace) -> check.Verdict:
    """Instead of a check: the first of these pairs ends its process."""
    if pair[0] == "deadly":
        os.kill(os.getpid(), signal.SIGSEGV)
    return "ok", f" {pair[0]}", 0.0


def test_a_crash_is_a_line_of_the_table_and_not_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "deadly", "b", "c"]
    monkeypatch.setattr(check, "offered", lambda: [(name, "gymnasium", name) for name in names])
    monkeypatch.setattr(check, "_judge", verdict_of)
    assert check.main(["--all", "--jobs", "2"]) == 1
    _, *rows, verdict = capsys.readouterr().out.splitlines()
    assert [row.split()[4:] for row in rows] == [
        ["ok", "a"],
        ["FAIL:", "its", "process", "crashed"],
        ["ok", "b"],
        ["ok", "c"],
    ]
    assert verdict == "1 broken"


def test_the_command_refuses_an_unknown_environment_with_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env=cartpole", "env.id=CartPol-v1", "backend=gymnasium"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert_one_line(err, "CartPol-v1")
