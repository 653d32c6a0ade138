"""`ppo-bench`: every command by one name, and completion in a real bash."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ppo_bench.commands.console import COMMANDS, main
from tests.refusals import assert_refused

PROGRAM = Path(sys.executable).parent / "ppo-bench"
COMPLETE = """eval "$(ppo-bench -sc install=bash)"
COMP_LINE={line!r} COMP_POINT={length} COMP_CWORD={last}
hydra_bash_completion
echo "${{COMPREPLY[@]}}"
"""


def completed(line: str) -> list[str]:
    """Completions that bash offers after `line`, in an empty folder."""
    script = COMPLETE.format(line=line, length=len(line), last=len(line.split()) - 1)
    environment = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    with TemporaryDirectory() as empty:
        ended = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, env=environment, cwd=empty
        )
    return sorted(ended.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert callable(importlib.import_module(COMMANDS[name][0]).main)
    with suppress(SystemExit):  # argparse's, after its help
        assert main([name, "--help"]) == 0
    assert "python -m ppo_bench" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["evaluat"], "there is no command 'evaluat'; did you mean evaluate?"),
        (["xyz"], "there is no command 'xyz'; there are train, sweep,"),
        (["train", "seeed=1"], "unknown key seeed; did you mean seed?"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert_refused(main, words, line, capsys)


@pytest.mark.slow
def test_the_program_finds_modules_in_the_current_folder(tmp_path: Path) -> None:
    """As `python -m ppo_bench` does; a word that begins with ~ trains, too."""
    (tmp_path / "mine.py").write_text("from ppo_bench.algorithms.ppo import Ppo\nclass Mine(Ppo): pass\n")
    small = ["ppo.num_envs=2", "ppo.num_steps=32", "total_timesteps=128", "device=cpu"]
    words = ["~env.ids.gymnasium", *small, "algorithm._target_=mine.Mine"]
    ended = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "backend=gymnasium has no env=cartpole" in ended.stderr
    subprocess.run([str(PROGRAM), *words[1:]], capture_output=True, text=True, check=True, cwd=tmp_path)


def test_the_version_is_that_of_the_package() -> None:
    """That of `python -m ppo_bench --version` is Hydra's, as of any Hydra application."""
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"ppo_bench {version('ppo-bench')}\n"


def test_the_program_lists_its_commands() -> None:
    ended = subprocess.run([PROGRAM], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in ended.stdout.splitlines()[2:]] == list(COMMANDS)


@pytest.mark.slow
def test_bash_completes_groups_and_choices() -> None:
    assert completed("ppo-bench train env=hop") == ["env=hopper"]
    assert completed("ppo-bench ppo.lear") == ["ppo.learning_rate="]
    assert completed("ppo-bench bench env=hop") == ["env=hopper"]
