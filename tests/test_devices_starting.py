"""Ctrl-C while the processes of a training or of a command start."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.faults import SECONDS, TWO, command
from tests.processes import children, command_line, started, wait_until
from tests.training import ROOT

pytestmark = pytest.mark.slow


def interrupted(command: list[str], seconds: float) -> None:
    """Ctrl-C so long after a command has started its first process; a terminal sends it to every process of the group.

    The command ends with one line, after at most `SECONDS`.
    """

    def heeded() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it

    with started(by=command, cwd=ROOT, start_new_session=True, preexec_fn=heeded) as process:
        wait_until(process, lambda: any("spawn_main" in command_line(pid) for pid in children(process.pid)))
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert error.strip().splitlines()[-1].startswith("ppo_bench: stopped")


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_ctrl_c_while_the_ranks_start_is_one_line(seconds: float, tmp_path: Path) -> None:
    interrupted([*command([]), *TWO, f"outputs={tmp_path}"], seconds)


@pytest.mark.parametrize("words", ["bench env=cartpole", "equivalence env=cartpole"])
def test_ctrl_c_while_a_commands_processes_start_is_one_line(words: str) -> None:
    module, *rest = words.split()
    interrupted([sys.executable, "-m", f"ppo_bench.{module}", *rest], 0.3)
