"""Faults that a run must survive: kills, damaged files, random configurations."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppo_bench.configuration.load import load_config
from tests.processes import TRAIN, count_rows, started, wait_until
from tests.training import ENVIRONMENT, ROOT, learnt, run_folder, snapshot

SHARDED = ["env=cartpole", "framework=torch_eager", "device=cpu", "ppo.shards=2", "total_timesteps=12288"]
SHARDED += ["checkpoint.every_iterations=5"]
TWO = [*SHARDED, "devices=2"]
SECONDS = 120.0
"""Longer than a failure of any rank takes to end a run on two devices; shorter than the timeout of a collective."""
MEMORY_BYTES = 16 * 2**30
"""Of a run: without a limit, what is too large is killed by the system instead of being refused by it."""


def command(overrides: list[str]) -> list[str]:
    return ["prlimit", f"--as={MEMORY_BYTES}", *TRAIN, *overrides]


def finish(overrides: list[str], cwd: Path = ROOT, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """The same command as a user would give it, to its end."""
    return subprocess.run(
        command(overrides),
        check=False,
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def started_run(overrides: list[str], count: int, wait_seconds: float = 0.0) -> Path:
    """Start a run, or go on with one, and kill it with -9 some seconds after it has `count` rows; its folder.

    With `count` 0 it is killed while it starts.
    """
    folder = run_folder(*overrides)
    before = _changed(folder)
    with started(*overrides, by=command([]), cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        if count:
            # A resumed run first cuts the rows of its predecessor back.
            wait_until(run, lambda: _changed(folder) != before and count_rows(folder) >= count)
        time.sleep(wait_seconds)
        assert run.poll() is None, f"ended before it was killed: {run.stderr.read() if run.stderr else ''}"
    return folder


def kill_and_restart(overrides: list[str], kills: int, rng: random.Random, seconds: float) -> None:
    """Kill a run with -9 at `kills` random moments, then let it end.

    A moment is as likely before the next checkpoint as after it; every third is one of the start of the program.
    `seconds` are about what passes from one writing of rows to the next.
    """
    every = load_config(overrides).root.checkpoint.every_iterations
    for k in range(kills):
        if k % 3 == 2:
            started_run(overrides, 0, rng.uniform(0, 3))
        else:
            count = _kept(run_folder(*overrides)) + rng.randrange(1, 2 * every)
            started_run(overrides, count, rng.uniform(0, seconds))
    run_to_end = finish(overrides)
    assert run_to_end.returncode == 0, run_to_end.stderr


def _changed(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.stat().st_mtime_ns if path.exists() else 0


def _kept(folder: Path) -> int:
    names = [path.name for path in (folder / "checkpoints").glob("iteration_????????")]
    return max((int(name.removeprefix("iteration_")) for name in names), default=0)


# --- Damage -----------------------------------------------------------------------------------------------------------


class Exploit:
    """Makes a folder when it is unpickled, which no command is to do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._folder),)


def damage(folder: Path, rng: random.Random, trap: Path) -> str:
    """Damage one file of a run, or put the pickle of an order to make `trap` in its place; what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    path, other = rng.sample(files, 2)
    kind = rng.choice(["cut", "flipped", "emptied", "swapped", "pickle", "removed", "folder", "noise"])
    data = path.read_bytes()
    match kind:
        case "cut":
            path.write_bytes(data[: rng.randrange(len(data) + 1)])
        case "flipped":
            at = rng.randrange(max(1, len(data)))
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if data else b"x")
        case "emptied":
            path.write_bytes(b"")
        case "swapped":
            path.write_bytes(other.read_bytes())
            other.write_bytes(data)
        case "pickle":
            path.write_bytes(pickle.dumps(Exploit(trap)))
        case "removed":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "noise":
            path.write_bytes(rng.randbytes(len(data)))
    swapped = f" with {other.relative_to(folder)}" if kind == "swapped" else ""
    return f"{kind}: {path.relative_to(folder)}{swapped}"


def resume_damaged(
    original: Path,
    reference: tuple[Any, ...],
    overrides: list[str],
    outputs: Path,
    rng: random.Random,
    finish: Callable[[list[str]], subprocess.CompletedProcess[str]],
) -> None:
    """Damage a copy of the run at `original` under `outputs`, and give its command again, by `finish`.

    Fails unless the run either ends as `reference`, which was not damaged, or stops with one line that leaves every
    file as it was.
    """
    overrides = [*overrides, f"outputs={outputs}"]
    folder, trap = run_folder(*overrides), outputs / "trap"
    shutil.copytree(original, folder, symlinks=True)
    done = damage(folder, rng, trap)
    before = snapshot(folder)
    run = finish(overrides)
    assert not trap.exists(), f"{done}: code was executed"
    assert "Traceback" not in run.stderr, f"{done}: {run.stderr}"
    if run.returncode == 0:
        assert run.stdout.splitlines()[-1] == str(folder), done
        if f"{folder} is done" in run.stderr:
            assert snapshot(folder) == before, f"{done}: files have changed"
            return
        assert learnt(folder) == reference or "warning" in run.stderr, f"{done}: ended otherwise, without a word"
        return
    assert run.returncode in (1, 2), f"{done}: exit {run.returncode}"
    assert str(folder) in run.stderr.splitlines()[-1], f"{done}: {run.stderr}"
    assert snapshot(folder) == before, f"{done}: files have changed"
