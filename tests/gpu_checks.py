"""What a check of `make gpu-proof` is: a command, of whose files and output figures are read, or why there are none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.training import ROOT

PART_SECONDS = 530
Figures = dict[str, Any]


class Check(NamedTuple):
    """One thing that is shown, by a function of the folder that it may write to."""

    name: str
    show: Callable[[Path], Figures]
    """Its figures. Raises `Unshown` if it is not so."""
    goes_on: bool = False
    """Whether another try goes on with what an earlier one left."""


class Unshown(Exception):
    """Why a check fails, in a line."""


class LeftOut(Exception):
    """Why a check cannot be made here."""


def ran(words: Sequence[str], folder: Path, seconds: float = PART_SECONDS) -> str:
    """Output of a command of this Python, which is added to `folder`/said.txt with what the command said on stderr.

    Raises `Unshown` with its last line if it fails.
    """
    command, said = [sys.executable, *words], folder / "said.txt"
    with said.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        try:
            ended = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=file, text=True, timeout=seconds, cwd=ROOT, check=False
            )
        except subprocess.TimeoutExpired as error:
            file.write((error.stdout or b"").decode())
            raise Unshown(f"it was stopped after {seconds:.0f} s") from error
        file.write(ended.stdout)
    if ended.returncode:
        lines = [line for line in said.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "$"]
        raise Unshown(f"exit code {ended.returncode}: {lines[-1] if lines else 'without a word'}")
    return ended.stdout
