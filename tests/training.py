"""A training of CartPole for tests of runs: its command, its folder, and its learnt arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ppo_bench.configuration.load import load_config
from ppo_bench.runners.checkpoint import load

ROOT = Path(__file__).parent.parent
BATCH, ITERATIONS, EVERY, NUM_ENVS = 512, 60, 5, 4
RUN = ["env=cartpole", "backend=gymnasium", "device=cpu", f"total_timesteps={ITERATIONS * BATCH + 100}"]
RUN += [f"checkpoint.every_iterations={EVERY}"]
SMALL = ["env=cartpole", "backend=gymnasium", "total_timesteps=1024"]


def run_folder(outputs: Path, arguments: list[str] = RUN) -> Path:
    return load_config([*arguments, f"outputs={outputs}"]).run_folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def learnt(folder: Path) -> tuple[list[dict[str, Any]], bytes, dict[str, bytes]]:
    """All that a run learnt, without the time that it took: metrics, episodes and everything in its last checkpoint."""
    metrics = rows(folder / "metrics.jsonl")
    timeless = [{key: row[key] for key in row if key not in ("wall_seconds", "sps")} for row in metrics]
    arrays = load(folder / "checkpoints" / f"iteration_{ITERATIONS:08d}").arrays
    best = (folder / "checkpoints" / "best").resolve().name.encode()
    episodes = (folder / "episodes.jsonl").read_bytes()
    return timeless, episodes, {name: arrays[name].tobytes() for name in arrays} | {"best": best}


def snapshot(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
