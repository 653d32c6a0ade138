"""Comparisons of one framework with itself in several variants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_bench.commands.equivalence.__main__ import main
from ppo_bench.common.cli import exit_code

pytestmark = pytest.mark.slow

SMALL = ["env=cartpole", "backend=gymnasium", "total_timesteps=4096"]


def test_variants_of_a_framework_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["frameworks=[torch_eager]", "variants={tuning:[on,off],ppo.update_epochs:[2,3]}", f"outputs={tmp_path}"]
    assert exit_code(main, [*SMALL, *words]) == 1  # epochs make another training, tuning does not
    shown = capsys.readouterr().out
    assert "torch_eager tuning=off ppo.update_epochs=2" in shown
    assert "the frameworks do not do the same" in shown
    (found,) = tmp_path.rglob("equivalence.json")
    largest = {
        name: each["largest"]["parameters"] for name, each in json.loads(found.read_text())["frameworks"].items()
    }
    assert largest["torch_eager tuning=off ppo.update_epochs=2"] == 0.0
    assert largest["torch_eager tuning=off ppo.update_epochs=3"] > 1e-4
    assert largest["torch_eager tuning=on ppo.update_epochs=3"] > 1e-4
