"""Trainings of a checkout by its command line, and what their folders hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

OWN_ENVIRONMENTS = Path(__file__).parent
"""The folder of `sights.py`, whose environments both trees can import."""
MEASURED_COLUMNS = ("wall_seconds", "sps")
"""Columns of metrics.jsonl that differ from run to run."""

Arrays = dict[str, np.ndarray]


def start_training(tree: Path, words: Sequence[str], outputs: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command of `tree` with the overrides `words`."""
    environment = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{OWN_ENVIRONMENTS}"}
    command = [sys.executable, "-m", "ppo_bench", *words, f"outputs={outputs}"]
    return subprocess.Popen(command, cwd=tree, env=environment, text=True, **options)


def run_folders(tree: Path, words: Sequence[str], training: subprocess.Popen[str]) -> list[Path]:
    """The run folders that a training prints, once it has ended. Exits if it has failed."""
    printed, errors = training.communicate()
    if training.returncode or not printed:
        sys.exit(f"{tree}: {' '.join(words)} failed:\n{errors}")
    return [Path(line) for line in printed.splitlines()]


def train_both(old: Path, new: Path, words: Sequence[str], scratch: Path) -> list[list[Path]]:
    """The run folders of one command in both trees at the same time, below `scratch / "old"` and `scratch / "new"`."""
    trees = ((old, scratch / "old"), (new, scratch / "new"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    trainings = [start_training(tree, words, outputs, **pipes) for tree, outputs in trees]
    try:
        return [run_folders(tree, words, each) for (tree, _), each in zip(trees, trainings, strict=True)]
    finally:
        for training in trainings:
            training.kill()
            training.wait()


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a run's `metrics` or `episodes`, without the columns that a clock has measured."""
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return [{key: x for key, x in json.loads(line).items() if key not in MEASURED_COLUMNS} for line in lines]


def checkpoints(folder: Path) -> dict[str, Arrays]:
    """The arrays of each checkpoint of a run, oldest first, by the names of their folders."""
    paths = sorted((folder / "checkpoints").glob("iteration_*"))
    return {path.name: safetensors.numpy.load((path / "arrays.safetensors").read_bytes()) for path in paths}
