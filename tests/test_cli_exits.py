"""The command line apart from wrong input: its help, its views of a configuration, its exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.paths import CONF
from tests.processes import TRAIN
from tests.refusals import assert_one_line, assert_refused
from tests.training import ENVIRONMENT, SMALL


def test_help_names_every_choice_and_the_common_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, ["--help"]) == 0
    text = capsys.readouterr().out
    offered = dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[a-z/_]+: ", line))
    choices = [path.relative_to(CONF).with_suffix("") for path in CONF.rglob("*.yaml") if path.parent != CONF]
    assert len(choices) > 15
    for choice in choices:
        if choice.parts[0] != "hydra":
            assert choice.name in offered[choice.parent.as_posix()].split(", ")
    for override in ("total_timesteps=", "seed=", "precision=", "device=", "ppo.num_envs=", "env.id=", "outputs="):
        assert any(line.strip().startswith(override) for line in text.splitlines()), override


def test_help_imports_no_framework(tmp_path: Path) -> None:
    heavy = ["torch", "jax", "envpool"]
    script = "import sys; from ppo_bench.__main__ import main; main(['-h']); "
    script += f"print([m in sys.modules for m in {heavy}])"
    words = [sys.executable, "-c", script]
    process = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == str([False] * len(heavy))


def interrupted(_: list[str]) -> int:
    raise KeyboardInterrupt


def exits(_: list[str]) -> int:
    sys.exit(0)


def without_a_file(arguments: list[str]) -> int:
    return len(Path(arguments[0]).read_bytes())


def test_an_interruption_is_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(interrupted, []) == 130
    assert_one_line(capsys.readouterr().err, "stopped at once")


def test_a_disk_that_fails_is_exit_code_1_and_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(without_a_file, [str(tmp_path / "gone")]) == 1
    assert_one_line(capsys.readouterr().err, f"No such file or directory: {tmp_path / 'gone'}")


def test_a_path_that_stdouts_encoding_lacks_is_printed_escaped(tmp_path: Path) -> None:
    small = ["ppo.num_envs=2", "ppo.num_steps=32", "total_timesteps=128", "device=cpu", "name='ä'"]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = ENVIRONMENT | locale | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ppo_bench", *small]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    (folder,) = tmp_path.glob("outputs/ä/*/seed1")
    assert ended.stdout.decode().strip() == str(folder.relative_to(tmp_path)).replace("ä", r"\udcc3\udca4")


def test_without_a_cxx_compiler_torch_compile_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    words = ["framework=torch_compile", *SMALL, f"outputs={tmp_path}"]
    assert_refused(main, words, "torch_compile needs a C++ compiler, and there is no /nonexistent/c++", capsys)


def test_an_exit_by_code_of_the_users_own_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(exits, []) == 1
    assert_one_line(capsys.readouterr().err, "the command raises SystemExit: 0 (tests/test_cli_exits.py, line ")


def test_an_error_that_is_not_the_users_keeps_its_traceback() -> None:
    with pytest.raises(IndexError):
        exit_code(without_a_file, [])


@pytest.mark.slow
def test_without_a_home_compiled_programs_are_kept_beside_the_runs(tmp_path: Path) -> None:
    words = ["framework=jax_xla", "device=cpu", "ppo.num_envs=2", "ppo.num_steps=8", "ppo.num_minibatches=1"]
    run = subprocess.run(
        [*TRAIN, *words, "ppo.update_epochs=1", "total_timesteps=16"],
        env=ENVIRONMENT | {"HOME": "/proc/nobody"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "warning: /proc/nobody/.cache/ppo_bench" in run.stderr
    assert any((tmp_path / "outputs" / ".compiled").rglob("*"))
