"""The part `race` of `make gpu-proof`: programs of others beside ours, in alternation.

Each is a script in a copy of its repository, which an environment variable names: PUREJAXRL, CLEANRL, LEANRL.
PEER_PYTHON is a Python with its packages.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ppo_bench.common.rows import read_rows
from tests.gpu_checks import PART_SECONDS, Figures, LeftOut, ran
from tests.training import ROOT

LEAN = "--compile", "--cudagraphs"
FIRST_ROWS = 10
"""Iterations that are not counted: programs are compiled, and episodes of new policies are short."""
Speed = Callable[[Path], float]
"""Environment steps per second of one run of a program, which may write to a folder."""


def race(ours: Mapping[str, Speed], theirs: Mapping[str, Speed], rounds: int) -> Callable[[Path], Figures]:
    """Medians of all programs, by name, from `rounds` in alternation, and the ratios of ours to theirs."""

    def show(folder: Path) -> Figures:
        speeds: dict[str, list[float]] = {name: [] for name in {**theirs, **ours}}
        for turn in range(rounds):
            for name, speed in {**theirs, **ours}.items():
                (own := folder / f"{name}-{turn}").mkdir()
                speeds[name].append(speed(own))
        sps = {name: statistics.median(of) for name, of in speeds.items()}
        ratios = {f"{mine} / {other}": sps[mine] / sps[other] for mine in ours for other in theirs}
        return {"sps": sps, "all": speeds, "ratios": ratios}

    return show


def training_speed(*words: str) -> Speed:
    """A training of ours, which records everything: the steps after its first iterations, by the times in its rows."""

    def speed(folder: Path) -> float:
        run = Path(ran(["-m", "ppo_bench", *words, f"outputs={folder}"], folder).splitlines()[-1])
        rows, together = read_rows(run / "metrics.jsonl"), json.loads((run / "run.json").read_text())["num_seeds"]
        first, last = rows[min(FIRST_ROWS, len(rows) // 2)], rows[-1]
        steps = last["global_step"] - first["global_step"]
        return float(together * steps / (last["wall_seconds"] - first["wall_seconds"]))

    return speed


def purejaxrl(num_envs: int, num_seeds: int, iterations: int, precision: str) -> Speed:
    """PureJaxRL's ppo.py; `precision` is JAX's."""

    def speed(folder: Path) -> float:
        root, python = _peer("PUREJAXRL")
        words = [root, num_envs, num_seeds, iterations, precision]
        command = [python, "-m", "tests.purejaxrl", *map(str, words)]
        return float(_output_of(command, str(ROOT), folder).splitlines()[-1])

    return speed


def brax(num_envs: int, iterations: int, precision: str) -> Speed:
    """Brax's own PPO on its Ant; `precision` is JAX's."""
    return _printed("tests.brax_ppo", num_envs, iterations, precision)


def games_alone(num_envs: int, num_steps: int) -> Speed:
    """Breakout on EnvPool with random actions, without a policy and learning."""
    return _printed("tests.games_alone", num_envs, num_steps)


def _printed(module: str, *words: object) -> Speed:
    """What a script of this Python prints last."""
    command = [sys.executable, "-m", module, *map(str, words)]
    return lambda folder: float(_output_of(command, str(ROOT), folder).splitlines()[-1])


def on_breakout(variable: str, script: str, *words: str, lengths: tuple[int, int] = (4 * 1024, 44 * 1024)) -> Speed:
    """A script below the folder that `variable` names: the difference of two lengths over that of times."""

    def speed(folder: Path) -> float:
        root, python = _peer(variable)
        seconds = []
        for steps in lengths:
            started = time.perf_counter()
            _output_of(
                [python, script, "--env-id", "Breakout-v5", "--total-timesteps", str(steps), *words], root, folder
            )
            seconds.append(time.perf_counter() - started)
        return (lengths[1] - lengths[0]) / (seconds[1] - seconds[0])

    return speed


def _peer(variable: str) -> tuple[str, str]:
    root, python = os.environ.get(variable), os.environ.get("PEER_PYTHON")
    if not root or not python:
        raise LeftOut(f"{variable} and PEER_PYTHON are not given")
    return str(Path(root).absolute()), str(Path(python).absolute())  # of a virtual environment, not what it links to


def _output_of(command: list[str], cwd: str, folder: Path) -> str:
    """Output of a command, which is added to `folder`/said.txt with what the command said on stderr."""
    with (folder / "said.txt").open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        ended = subprocess.run(
            command, cwd=cwd, check=True, stdout=subprocess.PIPE, stderr=file, text=True, timeout=PART_SECONDS
        )
        file.write(ended.stdout)
    return ended.stdout
