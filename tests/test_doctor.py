"""`ppo-bench doctor`: something hidden from its process changes the line about it, and no other line."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from ppo_bench.commands import doctor
from ppo_bench.commands.doctor import Answer, main, shown
from ppo_bench.common.cli import exit_code
from ppo_bench.tuning import machine
from tests.training import ENVIRONMENT

SITE = Path(sysconfig.get_path("purelib"))
CRASH = "import ctypes; ctypes.string_at(0)"


class Machine:
    """A Python whose installed packages are links to this one's, some of which can be taken away."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        (self.site,) = (folder / "lib").glob("*/site-packages")
        self.environment = ENVIRONMENT.copy()
        for path in SITE.iterdir():
            (self.site / path.name).symlink_to(path)

    def hide(self, *packages: str) -> None:
        """Take packages away, by the beginnings of their folders' names."""
        for package in packages:
            gone = [path for path in self.site.iterdir() if path.name == package or path.name.startswith(f"{package}-")]
            assert gone, package
            for path in gone:
                path.unlink()

    def examine(self) -> tuple[int, dict[str, str]]:
        """The exit code, and by its name what each row says."""
        command = [str(self.python), "-m", "ppo_bench.doctor"]
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert ended.stderr == ""
        table, self.summary = ended.stdout.split("\n\n")
        lines = [line[4:] for line in table.replace("\n    fix:", " fix:").splitlines()]
        return ended.returncode, dict(line.split(": ", 1) for line in lines)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of this machine as it is."""
    code, rows = Machine(tmp_path_factory.mktemp("whole") / "venv").examine()
    assert code == 0
    return rows


def replaced(package: str, code: str) -> Callable[[Machine], None]:
    """A package that is installed, and whose import does something else."""

    def hide(machine: Machine) -> None:
        (machine.site / package).unlink()
        (machine.site / f"{package}.py").write_text(code)

    return hide


def without_programs_and_with_an_older_optax(machine: Machine) -> None:
    machine.environment["PATH"] = ""
    (info,) = machine.site.glob("optax-*.dist-info")
    info.unlink()
    older = machine.site / "optax-0.1.9.dist-info"
    older.mkdir()
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 0.1.9\n")


ON_JAX = ("jax", "brax", "minatar")
HIDDEN: dict[str, tuple[list[str], list[Callable[[Machine], None]], dict[str, str], int]] = {
    "torch": (
        ["torch"],
        [],
        {
            "torch": "no torch fix: pip install 'ppo-bench[torch]'",
            "CUDA in PyTorch": "torch: not installed fix: pip install 'ppo-bench[torch]'",
        },
        1,
    ),
    "a torch that crashes, a jax that fails": (
        [],
        [replaced("torch", CRASH), replaced("jax", "raise RuntimeError('no backend')")],
        {
            "CUDA in PyTorch": "torch: killed by SIGSEGV fix: pip install --force-reinstall torch",
            "CUDA in JAX": "jax: RuntimeError: no backend fix: pip install --force-reinstall jax",
        },
        1,
    ),
    "hydra": (["hydra_core"], [], {"ppo-bench": "no hydra-core fix: pip install ppo-bench"}, 1),
    "jax, ale-py": (
        ["jax", "ale_py"],
        [],
        {
            "jax": "no jax fix: pip install 'ppo-bench[jax]'",
            "CUDA in JAX": "jax: not installed fix: pip install 'ppo-bench[jax]'",
            "brax": "no jax fix: pip install 'ppo-bench[brax]'",
            "minatar": "no jax fix: pip install 'ppo-bench[minatar]'",
            "atari": "no ale-py fix: pip install 'ppo-bench[atari]'",
            "pettingzoo": "no ale-py fix: pip install 'ppo-bench[pettingzoo]'",
        },
        0,
    ),
    "EnvPool, pygame, programs, an older optax": (
        ["envpool", "pygame_ce"],
        [without_programs_and_with_an_older_optax],
        {
            "envpool": "no envpool fix: pip install 'ppo-bench[envpool]'",
            "pettingzoo": "no pygame-ce fix: pip install 'ppo-bench[pettingzoo]'",
            "video": "no pygame-ce fix: pip install 'ppo-bench[video]'",
            "C++ compiler": "no g++ on PATH fix: apt install g++",
            **{name: f"optax 0.1.9 is not >=0.2.3 fix: pip install 'ppo-bench[{name}]'" for name in ON_JAX},
        },
        0,
    ),
}
"""What is hidden at once, since a machine takes seconds: packages and others, the lines about them, the exit code."""


@pytest.mark.slow
@pytest.mark.parametrize(("packages", "others", "expected", "code"), HIDDEN.values(), ids=list(HIDDEN))
def test_what_is_hidden_has_the_line_that_fixes_it(
    packages: list[str],
    others: list[Callable[[Machine], None]],
    expected: dict[str, str],
    code: int,
    here: dict[str, str],
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path / "venv")
    machine.hide(*packages)
    for hide in others:
        hide(machine)
    found_code, rows = machine.examine()
    assert {name: rows[name][-len(said) :] for name, said in expected.items()} == expected
    assert [name for name in set(here) - set(expected) if rows[name] != here[name]] == []
    assert found_code == code
    assert machine.summary.startswith("The default run will fail. Fix:" if code else "The default run can run")


@pytest.mark.parametrize(
    ("package", "answer", "said"),
    [
        ("torch", Answer(["13.0", ["NVIDIA H100"]], ""), "NVIDIA H100"),
        ("torch", Answer([None, []], ""), "torch is a CPU build, for which there is no GPU fix: pip install"),
        ("torch", Answer(["13.0", []], ""), "torch, built for CUDA 13.0, sees no GPU fix: apt install nvidia-driver"),
        ("jax", Answer([None, []], ""), "JAX does not see the GPU of this machine fix: pip install 'ppo-bench[jax-"),
        ("jax", Answer([None, ["NVIDIA H100"]], ""), "NVIDIA H100"),
    ],
)
def test_a_gpu_that_is_there_is_seen_or_has_a_fix(package: str, answer: Answer, said: str) -> None:
    row = doctor._cuda("CUDA", package, answer, gpu=True)
    assert " ".join(" ".join(shown(row)).split()).partition(": ")[2].startswith(said)


def test_a_gpu_that_pytorch_does_not_see_stops_the_default_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0000:01:00.0").touch()
    monkeypatch.setattr(machine, "NVIDIA_GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(doctor, "PROBES", dict.fromkeys(doctor.PROBES, "print('[null, []]')"))
    assert exit_code(main, []) == 1
    assert "The default run will fail. Fix: CUDA in PyTorch" in capsys.readouterr().out


def test_a_probe_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.2)
    monkeypatch.setitem(doctor.PROBES, "torch", "import time; time.sleep(60)")
    assert doctor.ask("torch") == Answer(None, "no answer within 0 seconds")


def test_wrong_words_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, ["--output"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
