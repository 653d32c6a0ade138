"""Which of two checkouts is faster? Both train at the same time, and one of them is always stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

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
        outputs.mkdir()
        with open(outputs / "stderr.txt", "w") as errors:
            own: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": errors, "start_new_session": True}
            self._process = start_training(tree, [*words, *ENDLESS], outputs, **own)
        self._rows: BinaryIO | None = None
        self._rest = b""
        self._ended = [0.0]
        self._stopped_at = 0.0

    def compile(self) -> None:
        """Run the first iterations, then stop."""
        self._wait_for_rows(COMPILING_ITERATIONS)
        self._stop()

    def turn(self, seconds: float) -> float:
        """Run for at least `seconds`; the mean duration of an iteration."""
        stopped = time.monotonic() - self._stopped_at
        self._signal(signal.SIGCONT)
        time.sleep(seconds)
        self._wait_for_rows(ROWS_OF_A_TURN)
        self._stop()
        return (self._ended[-1] - self._ended[0] - stopped) / (len(self._ended) - 1)

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        self._stopped_at = time.monotonic()

    def _wait_for_rows(self, count: int) -> None:
        """Read when iterations ended: at least `count` of them, after the last one that is known."""
        self._ended = self._ended[-1:]
        while len(self._ended) <= count:
            if self._process.poll() is not None:
                errors = (self._outputs / "stderr.txt").read_text()
                raise SystemExit(f"{self._name} has ended with exit code {self._process.returncode}:\n{errors}")
            time.sleep(0.05)
            if self._rows is None and (path := next(self._outputs.rglob("metrics.jsonl"), None)):
                self._rows = open(path, "rb")  # noqa: SIM115 (read as long as the training runs)
            if self._rows:
                *lines, self._rest = (self._rest + self._rows.read()).split(b"\n")
                self._ended += [json.loads(line)["wall_seconds"] for line in lines]

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End the training."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self._process.wait()
        if self._rows:
            self._rows.close()


def turns(old: Path, new: Path, words: Sequence[str], rounds: int, seconds: float) -> list[float]:
    """New speed / old speed in each of `rounds`, by one process of each tree with turns of `seconds`."""
    trainings: list[Training] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for name, tree in (("old", old), ("new", new)):
                trainings.append(Training(tree, words, Path(scratch) / name))
                trainings[-1].compile()
            ratios = []
            for k in range(rounds):
                taken = [0.0, 0.0]
                for position in (0, 1) if k % 2 == 0 else (1, 0):
                    taken[position] = trainings[position].turn(seconds)
                ratios.append(taken[0] / taken[1])
        finally:
            for training in trainings:
                training.close()
    return ratios


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """The median of `ratios [pairs, rounds]` and its 95% interval by the bootstrap, of pairs and of rounds in them."""
    rng, (pairs, rounds) = np.random.default_rng(0), ratios.shape
    chosen = rng.integers(0, pairs, (10_000, pairs, 1)), rng.integers(0, rounds, (10_000, pairs, rounds))
    low, high = np.quantile(np.median(ratios[chosen], (1, 2)), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def speed(old: Path, new: Path, commands: Sequence[Sequence[str]], *, pairs: int, rounds: int, seconds: float) -> int:
    """Time every command in both trees; how many are slower beyond doubt.

    Processes of the same tree differ by some percent for as long as they live, so that several `pairs` are timed.
    """
    slower = 0
    for words in commands:
        ratios = [turns(old, new, words, rounds, seconds) for _ in range(pairs)]
        median, low, high = interval(np.array(ratios))
        slower += high < SLOWER
        by_pair = ", ".join(f"{each:.3f}" for each in np.median(ratios, 1))
        print(f"{median:5.3f} [{low:.3f}, {high:.3f}]  {' '.join(words)} (pairs: {by_pair})", flush=True)
    return slower
