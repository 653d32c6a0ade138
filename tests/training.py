"""Trainings in tests: the tested package's place, short runs, and what their folders hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ppo_bench.commands.interface import train
from ppo_bench.configuration.load import load_config
from ppo_bench.runners.checkpoint import find, load

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
"""Variables of processes that are to use the package that is tested."""
BATCH, ITERATIONS, EVERY, NUM_ENVS = 512, 30, 5, 4
RUN = ["env=cartpole", "backend=gymnasium", "device=cpu", f"total_timesteps={ITERATIONS * BATCH + 100}"]
RUN += [f"checkpoint.every_iterations={EVERY}"]
GYM, SHORT = ["backend=gymnasium"], ["total_timesteps=1024"]
SMALL = ["env=cartpole", *GYM, *SHORT]


def run_folder(*words: str) -> Path:
    """The folder of the run that a command's words ask for."""
    return load_config(words).run_folder


def trained(outputs: Path, *words: str) -> Path:
    """The folder of a run under `outputs`, once it has ended; it trains on the CPU, in this process."""
    return train([*words, "device=cpu", f"outputs={outputs}"])[0]


def rows(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    """The rows of a run's metrics or episodes."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def timeless(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    """The rows of a run's metrics or episodes, but for what a clock has measured."""
    return [{key: row[key] for key in row if key not in ("wall_seconds", "sps")} for row in rows(folder, name)]


def learnt(folder: Path) -> tuple[list[dict[str, Any]], bytes, dict[str, bytes]]:
    """All that a run learnt, without the time that it took: metrics, episodes and everything in its last checkpoint."""
    arrays = load(find(folder)).arrays
    best = (folder / "checkpoints" / "best").resolve().name.encode()
    episodes = (folder / "episodes.jsonl").read_bytes()
    return timeless(folder), episodes, {name: arrays[name].tobytes() for name in arrays} | {"best": best}


def snapshot(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """The content of each file of a run, and when it was written, but for evaluations and what Hydra writes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not {".hydra", "evaluations"} & {*path.parts}]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def flip_a_bit(path: Path) -> None:
    """Damage to the arrays of a checkpoint, in a single bit."""
    data = bytearray((path / "arrays.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "arrays.safetensors").write_bytes(data)
