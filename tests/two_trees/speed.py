"""Which of two checkouts is faster? Both train at the same time, and one of them is always stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.two_trees.trees import start_training

ENDLESS = ("total_timesteps=1_000_000_000", "checkpoint.every_iterations=1000")
COMPILING_ITERATIONS = 4
ROWS_OF_A_TURN = 4
SLOWER = 0.97


class Training:
    """A training in a process group of its own, which runs only in its turns."""

    def __init__(self, tree: Path, words: Sequence[str], outputs: Path) -> None:
        self._outputs, self._name = outputs, f"{tree}: {' '.join(words)}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self._process = start_training(tree, [*words, *ENDLESS], outputs, **quiet)
        self._read = 0
        self._rows(COMPILING_ITERATIONS, 0.0)
        self._signal(signal.SIGSTOP)

    def turn(self, seconds: float) -> float:
        """Run for at least `seconds`; the mean duration of an iteration."""
        self._signal(signal.SIGCONT)
        ended = self._rows(ROWS_OF_A_TURN, seconds)
        self._signal(signal.SIGSTOP)
        gaps = sorted(np.diff(ended))
        return float(np.mean(gaps[:-1]))  # the iteration that was stopped took longest

    def _rows(self, count: int, seconds: float) -> list[float]:
        """When iterations ended: at least `count` new ones, and those of at least `seconds`; one before them first."""
        until, path = time.monotonic() + seconds, None
        while True:
            path = path or next(self._outputs.rglob("metrics.jsonl"), None)
            lines = path.read_bytes().split(b"\n")[:-1] if path else []
            if len(lines) - self._read >= count and time.monotonic() >= until:
                ended = [json.loads(line)["wall_seconds"] for line in lines[max(self._read - 1, 0) :]]
                self._read = len(lines)
                return ended
            if self._process.poll() is not None:
                raise SystemExit(f"{self._name} has ended with exit code {self._process.returncode}")
            time.sleep(0.01)

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End the training."""
        self._signal(signal.SIGKILL)
        self._process.wait()


def ratio(old: Path, new: Path, words: Sequence[str], rounds: int, seconds: float) -> tuple[float, float, float]:
    """New speed / old speed: the median over `rounds` of turns of `seconds` each, and its bootstrapped 95% interval."""
    trainings: list[Training] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for name, tree in (("old", old), ("new", new)):
                trainings.append(Training(tree, words, Path(scratch) / name))
            ratios = []
            for k in range(rounds):
                taken = [0.0, 0.0]
                for position in (0, 1) if k % 2 == 0 else (1, 0):
                    taken[position] = trainings[position].turn(seconds)
                ratios.append(taken[0] / taken[1])
        finally:
            for training in trainings:
                training.close()
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (10_000, rounds)), 1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def speed(old: Path, new: Path, commands: Sequence[Sequence[str]], rounds: int, seconds: float) -> int:
    """Time every command in both trees; how many are slower beyond doubt."""
    slower = 0
    for words in commands:
        median, low, high = ratio(old, new, words, rounds, seconds)
        slower += high < SLOWER
        print(f"{median:5.3f} [{low:.3f}, {high:.3f}]  {' '.join(words)}", flush=True)
    return slower
