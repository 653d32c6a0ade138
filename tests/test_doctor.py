"""`ppo-bench doctor`: something hidden from its process changes the line about it, and no other line."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from ppo_bench.commands import doctor
from ppo_bench.commands.doctor import main
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

    def examine(self, *words: str) -> tuple[int, dict[str, str]]:
        """The exit code, and by its name what each row says."""
        command = [str(self.python), "-m", "ppo_bench.doctor", *words]
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert ended.stderr == ""
        table, self.summary = ended.stdout.split("\n\n")
        assert max(map(len, table.splitlines())) <= 80
        rows: dict[str, str] = {}
        for line in table.splitlines():
            if name := line[: doctor.NAME_WIDTH].strip():
                rows[name] = ""
            rows[name or list(rows)[-1]] += f"{line[doctor.NAME_WIDTH :].strip()} "
        return ended.returncode, {name: " ".join(said.split()) for name, said in rows.items()}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of this machine as it is."""
    code, rows = Machine(tmp_path_factory.mktemp("whole") / "venv").examine()
    assert code == 0
    return rows


def of_packages(*packages: str) -> Callable[[Machine], None]:
    return lambda machine: machine.hide(*packages)


def replaced(package: str, code: str) -> Callable[[Machine], None]:
    """A package that is installed, and whose import does something else."""

    def hide(machine: Machine) -> None:
        (machine.site / package).unlink()
        (machine.site / f"{package}.py").write_text(code)

    return hide


HIDDEN: dict[str, tuple[Callable[[Machine], None], dict[str, str], int]] = {
    "torch": (
        of_packages("torch"),
        {
            "torch": "no torch fix: pip install 'ppo-bench[torch]'",
            "CUDA in PyTorch": "torch: not installed fix: pip install 'ppo-bench[torch]'",
            "onnx": "no torch fix: pip install 'ppo-bench[onnx]'",
        },
        1,
    ),
    "a torch that crashes": (
        replaced("torch", CRASH),
        {"CUDA in PyTorch": "torch: killed by SIGSEGV fix: pip install --force-reinstall 'ppo-bench[torch]'"},
        1,
    ),
    "ale-py": (
        of_packages("ale_py"),
        {
            "atari": "no ale-py fix: pip install 'ppo-bench[atari]'",
            "pettingzoo": "no ale-py fix: pip install 'ppo-bench[pettingzoo]'",
        },
        0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HIDDEN)
def test_what_is_hidden_has_the_line_that_fixes_it(what: str, here: dict[str, str], tmp_path: Path) -> None:
    machine, (hide, expected, code) = Machine(tmp_path / "venv"), HIDDEN[what]
    hide(machine)
    found_code, rows = machine.examine()
    assert {name: rows[name][-len(said) :] for name, said in expected.items()} == expected
    others = set(here) - set(expected) - {"disk"}  # whose free space changes by itself
    assert [name for name in others if rows[name] != here[name]] == []
    assert found_code == code
    assert machine.summary.startswith("The default run will fail. Fix:" if code else "The default run can run")


@pytest.mark.parametrize("folder", ["/proc/runs", "/dev/null/runs"])
def test_a_disk_without_room_stops_the_default_run(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "PROBES", dict.fromkeys(doctor.PROBES, "print('[null, []]')"))
    assert exit_code(main, ["--outputs", folder]) == 1
    said = capsys.readouterr().out
    assert "fix: ppo-bench train outputs=DIR, a folder on a disk with room" in said
    assert said.endswith("The default run will fail. Fix: disk\n")


def test_a_gpu_that_pytorch_does_not_see_stops_the_default_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0000:01:00.0").touch()
    monkeypatch.setattr(machine, "NVIDIA_GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(doctor, "PROBES", dict.fromkeys(doctor.PROBES, "print('[null, []]')"))
    assert exit_code(main, []) == 1
    assert "The default run will fail. Fix: CUDA in PyTorch" in capsys.readouterr().out
