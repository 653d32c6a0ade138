"""Short runs, and what evaluations of them write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ppo_bench.commands.evaluate import main
from ppo_bench.common.cli import exit_code

CARTPOLE = ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=2048", "checkpoint.every_iterations=2"]
SMALL = ["ppo.num_steps=16", "ppo.num_envs=2", "ppo.num_minibatches=1", "ppo.update_epochs=1", "total_timesteps=32"]
ON_CPU = "device=cpu"

RUNS = dict[str, Path]


def evaluated(folder: Path, *overrides: str) -> dict[str, Any]:
    """What an evaluation wrote."""
    before = {path: path.stat().st_mtime_ns for path in folder.glob("evaluations/*.json")}
    assert exit_code(main, [str(folder), ON_CPU, *overrides]) == 0
    (written,) = (p for p in folder.glob("evaluations/*.json") if p.stat().st_mtime_ns != before.get(p))
    found: dict[str, Any] = json.loads(written.read_text())
    return found


def played(evaluation: dict[str, Any]) -> tuple[list[float], list[int]]:
    return evaluation["returns"], evaluation["lengths"]


def config_with(run: Path, **changes: Any) -> None:
    about = json.loads((run / "run.json").read_text())
    about["config"] |= changes
    (run / "run.json").write_text(json.dumps(about))
