"""Processes that share a training, as they start: Ctrl-C, scripts, ranks that are slow but honest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults import SECONDS, TWO, command
from tests.processes import children, command_line, started, wait_until
from tests.training import ENVIRONMENT, ROOT

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


@pytest.mark.parametrize("seconds", [0.0, 0.002, 1.5])
def test_ctrl_c_while_the_ranks_start_is_one_line(seconds: float, tmp_path: Path) -> None:
    interrupted([*command([]), *TWO, f"outputs={tmp_path}"], seconds)


@pytest.mark.parametrize("words", ["bench env=cartpole", "equivalence env=cartpole", "check --all"])
def test_ctrl_c_while_a_commands_processes_start_is_one_line(words: str) -> None:
    module, *rest = words.split()
    interrupted([sys.executable, "-m", f"ppo_bench.{module}", *rest], 0.3)


def test_a_script_without_a_guard_trains_on_two_devices(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    words = [*TWO, "total_timesteps=1024", f"outputs={tmp_path / 'outputs'}"]
    script.write_text(f"import ppo_bench\nprint(len(ppo_bench.train({words!r})))\n")
    ended = subprocess.run(
        [sys.executable, str(script)],
        check=False,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr


def test_an_honest_slow_step_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose steps have taken long before may take a few times as long again."""
    import multiprocessing

    from ppo_bench.common import ranks

    monkeypatch.setattr(ranks, "HANGS_SECONDS", 2.0)
    ours, theirs = multiprocessing.Pipe()
    group = ranks.Ranks([ranks.Other(1, ours, None)], ranks.Ticks())
    group.ask("step", within_seconds=ranks.HANGS_SECONDS)
    started_at = time.monotonic()
    for count, gap in enumerate((1.5, 4.0)):
        until = time.monotonic() + gap
        while time.monotonic() < until:
            theirs.send(("beat", count))
            time.sleep(0.2)
    theirs.send(("answer", ("done", ())))
    assert group.answers() == [("done", ())]
    assert time.monotonic() - started_at > 5
    group.stop()
