"""Every command is a module, too: `python -m ppo_bench.report` is `ppo-bench report`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ppo_bench.commands.console import COMMANDS
from tests.training import ENVIRONMENT

pytestmark = pytest.mark.slow


def said(*words: str) -> str:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("train", "sweep")])
def test_a_command_is_a_module(name: str) -> None:
    assert f"python -m ppo_bench.{name}" in said(f"ppo_bench.{name}", "--help")
