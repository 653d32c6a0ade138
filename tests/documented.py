"""Commands in README and docs/: which blocks there are, how each is marked, and a shell that runs them.

A block of `bash` has a mark on the line before it, which README and the site do not show as such:

- `<!-- run -->`: the tests run it as it stands, after the blocks above it on the same page, in one folder;
- `<!-- run: total_timesteps=8192 -->`: the same, with these words added to each of its commands that train;
- `<!-- composed: ... -->`: its words are configurations whose environments are made; who trains such ones instead;
- `<!-- slurm: total_timesteps=2048 -->`: tests/slurm runs it on a cluster, and adds the words to launch/slurm.py;
- `<!-- not run: ... -->`: why not.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.training import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FIRST = tuple(ROOT / name for name in ("README.md", "docs/getting-started.md", "docs/tutorial.md"))
"""Pages that are read first; tests/test_getting_started.py runs them, and tests/test_pages.py the others."""
MARK = re.compile(r"<!-- (run|composed|slurm|not run)(?:: (.+))? -->")
TRAINS = ("train", "sweep", "bench", "equivalence")
PYTHON = shlex.quote(sys.executable)
PPO_BENCH = f"{PYTHON} -c 'from ppo_bench.commands.console import console; console()'"
PROGRAM = """#!/usr/bin/env bash
# The program, with the words of the mark added where it trains
case "${{1-}}" in
    {trains}) set -- "$@" $MARKED_WORDS ;;
esac
exec {program} "$@"
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    kind: str
    """`run`, `composed`, `slurm`, `not run`, or nothing where there is no mark."""
    words: str
    """What follows the mark's colon."""
    text: str

    @property
    def place(self) -> str:
        """Where it begins."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    begin: int | None = None
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("```"):
            continue
        if begin is None:
            begin = number
            continue
        mark = MARK.fullmatch(lines[begin - 2]) if begin > 1 else None
        kind, words = (mark[1], mark[2] or "") if mark else ("", "")
        language = lines[begin - 1].strip().removeprefix("```")
        found.append(Block(page, begin, language, kind, words, "\n".join(lines[begin : number - 1]) + "\n"))
        begin = None
    assert begin is None, f"{page}: the block of line {begin} has no end"
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block, without comments."""
    joined = block.text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def trainings(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a block that get the mark's words: the name of each, such as `train`, and its overrides."""
    found = []
    for program, *words in commands(block):
        first = words[0] if words else ""
        if program == "ppo-bench" and (first in TRAINS or first.startswith("-") or "=" in first):
            found.append((first, words[1:]) if first in TRAINS else ("train", words))
    return found


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block by bash in `folder`, where `ppo-bench`, `python` and `launch/` are those of the tests."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "launch").symlink_to(ROOT / "launch")
    _write(programs / "ppo-bench", PROGRAM.format(program=PPO_BENCH, trains=" | ".join((*TRAINS, "-*", "*=*"))))
    _write(programs / "python", PROGRAM.format(program=PYTHON, trains="launch/slurm.py"))
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    # The environment of now, since a cluster of SLURM names itself there.
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "MARKED_WORDS": block.words}
    script = ["bash", "-euo", "pipefail", "-c", block.text]
    return subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def run_page(page: Path, folder: Path) -> None:
    """Run the blocks of a page in `folder`. Fails unless all end well."""
    for block in blocks(page):
        if block.kind == "run":
            done = run(block, folder)
            said = done.stdout[-2000:] + done.stderr[-2000:]
            assert done.returncode == 0, f"{block.place}: {said}"
            assert "Traceback" not in said, f"{block.place}: {said}"


def _write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)
