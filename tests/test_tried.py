"""Broken user-defined environments: `check` and training name the fault and the environment in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.commands.__main__ import main
from ppo_bench.commands.check import main as check
from ppo_bench.common.cli import exit_code
from tests.refusals import assert_one_line

DECLARED = "and its observation_space says (4,) and float32"
SAYS = {
    "Shape": f"reset gives an observation of shape (3,) and type float32, {DECLARED}",
    "Type": f"reset gives an observation of shape (4,) and type float64, {DECLARED}",
    "OldApi": "step gives 4 values, and not the five of gymnasium: (observation, reward, terminated, truncated, info); "
    "four are those of gym before 0.26",
    "NotANumber": "reset gives an observation that is not of finite numbers",
    "RewardArray": "step gives a reward of shape (1,), and not a number",
    "NoInfo": "reset gives an array of shape (4,) alone, and not (observation, info)",
    "Raises": "step raises KeyError: 'velocity'",
}


@pytest.mark.parametrize("kind", SAYS)
def test_a_broken_environment_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env_id = f"tests.broken:{kind}-v0"
    words = ["backend=gymnasium", f"env.id={env_id}"]
    for command, arguments in ((main, [*words, f"outputs={tmp_path}"]), (check, words)):
        assert exit_code(command, arguments) == 2
        assert_one_line(capfd.readouterr().err, f"{env_id}: {SAYS[kind]}")
    assert not any(tmp_path.iterdir())


def test_a_sound_one_trains(tmp_path: Path) -> None:
    words = ["backend=gymnasium", "env.id=tests.broken:Sound-v0", "ppo.num_steps=16", "total_timesteps=128"]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
