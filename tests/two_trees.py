"""Two checkouts side by side: do they train the same, bit for bit, and which is faster?

    python -m tests.two_trees same OLD NEW [WORD...]                what 14 runs leave behind
    python -m tests.two_trees speed OLD NEW [WORD...] --rounds 10   seconds of an iteration, in alternation

`WORD...` choose the commands that contain all of them. Both checkouts are run by this Python, whose packages they
share. `same` exits 1 if anything but times differs; `speed` exits 1 if an interval of a ratio new / old lies below
0.97.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tests.training import timeless

FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
SHORT = ["total_timesteps=4096", "checkpoint.every_iterations=3"]
RUNS = [
    *(
        [f"framework={framework}", "env=cartpole", f"backend={backend}", *SHORT]
        for framework in FRAMEWORKS
        for backend in ("gymnasium", "envpool")
    ),
    ["framework=jax_xla", "env=cartpole", "backend=jax", *SHORT],
    ["framework=jax_xla", "env=cartpole", "backend=jax", "num_seeds=4", *SHORT],
    *(
        [
            f"framework={framework}",
            "env=hopper",
            "backend=envpool",
            "ppo.num_steps=256",
            "total_timesteps=2048",
            SHORT[1],
        ]
        for framework in FRAMEWORKS
    ),
    *(
        [f"framework={framework}", "env=breakout", "backend=envpool", "total_timesteps=6144", SHORT[1]]
        for framework in FRAMEWORKS
    ),
]
"""The overrides of each; six iterations or more, with a checkpoint in between."""
TIMED = [
    *([f"framework={framework}", "env=breakout", "backend=envpool"] for framework in FRAMEWORKS),
    ["framework=torch_compile", "env=cartpole", "backend=gymnasium"],
    ["framework=torch_compile", "env=cartpole", "backend=envpool"],
    ["framework=jax_xla", "env=cartpole", "backend=jax"],
    ["framework=torch_compile", "env=hopper", "backend=envpool"],
]
SLOWER = 0.97

TURNS = """
import statistics, sys, time
from ppo_bench.commands.bench.laps import Laps
from ppo_bench.commands.bench.programs import load

laps = Laps(load(sys.argv[2:]))
print("ready", flush=True)
for _ in sys.stdin:
    until, seconds = time.perf_counter() + float(sys.argv[1]), []
    while not seconds or time.perf_counter() < until:
        seconds.append(laps.turn())
    print(statistics.median(seconds), flush=True)
"""


def start(tree: Path, arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Python with the package of `tree` first."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.Popen([sys.executable, *arguments], cwd=tree, env=environment, text=True, **options)


# --- The same? --------------------------------------------------------------------------------------------------------


def run(tree: Path, words: Sequence[str], outputs: Path) -> list[Path]:
    """The run folders of one command."""
    command = ["-m", "ppo_bench", *words, f"outputs={outputs}"]
    process = start(tree, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"{tree}: {' '.join(words)} failed:\n{errors}")
    return sorted((path.parent for path in outputs.rglob("result.json")), key=lambda path: path.name)


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """Arrays of the last checkpoint."""
    newest = max((folder / "checkpoints").glob("iteration_*"))
    return safetensors.numpy.load((newest / "arrays.safetensors").read_bytes())


def different(old: Path, new: Path) -> list[str]:
    """Differences of two run folders, a line each."""
    found = []
    for name in ("metrics", "episodes"):
        lines, others = timeless(old, name), timeless(new, name)
        if lines != others:
            first = next((i for i, pair in enumerate(zip(lines, others, strict=False)) if pair[0] != pair[1]), None)
            found.append(f"{name}.jsonl: {len(lines)} rows and {len(others)}, the first that differs is {first}")
    expected, after = arrays(old), arrays(new)
    for name in sorted(expected.keys() ^ after.keys()):
        found.append(f"{name} is in one checkpoint alone")
    for name in sorted(expected.keys() & after.keys()):
        mine, theirs = expected[name], after[name]
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape or mine.tobytes() != theirs.tobytes():
            gap = np.abs(mine.astype(np.float64) - theirs).max() if mine.shape == theirs.shape else None
            found.append(f"{name}: {mine.dtype}{mine.shape} and {theirs.dtype}{theirs.shape}, largest gap {gap}")
    return found


def same(old: Path, new: Path, commands: Sequence[Sequence[str]]) -> int:
    """Run every command in both; how many differ."""
    failed = 0
    for words in commands:
        with tempfile.TemporaryDirectory() as scratch:
            folders = [run(tree, words, Path(scratch) / name) for tree, name in ((old, "old"), (new, "new"))]
            found = [line for pair in zip(*folders, strict=True) for line in different(*pair)]
        failed += bool(found)
        print("differs" if found else "same   ", " ".join(words), flush=True)
        for line in found[:6]:
            print(f"        {line}", flush=True)
    print(f"{len(commands) - failed} of {len(commands)} commands leave the same")
    return failed


# --- Faster? ----------------------------------------------------------------------------------------------------------


def ratio(old: Path, new: Path, words: Sequence[str], rounds: int, seconds: float) -> tuple[float, float, float]:
    """New speed / old speed: the median over `rounds` of turns of `seconds` each, and its bootstrapped 95% interval."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    programs = [start(tree, ["-c", TURNS, str(seconds), *words], **pipes) for tree in (old, new)]

    def turn(program: subprocess.Popen[str]) -> float:
        assert program.stdin
        assert program.stdout
        program.stdin.write("\n")
        program.stdin.flush()
        return float(program.stdout.readline())

    try:
        for program in programs:
            assert program.stdout
            program.stdout.readline()
        ratios = []
        for k in range(rounds):
            order = programs if k % 2 == 0 else programs[::-1]
            taken = {id(program): turn(program) for program in order}
            ratios.append(taken[id(programs[0])] / taken[id(programs[1])])
    finally:
        for program in programs:
            program.kill()
            program.wait()
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (10_000, rounds)), 1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def speed(old: Path, new: Path, commands: Sequence[Sequence[str]], rounds: int, seconds: float) -> int:
    """Time every command in both; how many are slower beyond doubt."""
    slower = 0
    for words in commands:
        median, low, high = ratio(old, new, words, rounds, seconds)
        slower += high < SLOWER
        print(f"{median:5.3f} [{low:.3f}, {high:.3f}]  {' '.join(words)}", flush=True)
    return slower


def main() -> int:
    """See the module's docstring."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "speed"))
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    old, new = options.old.resolve(), options.new.resolve()
    every = RUNS if options.what == "same" else TIMED
    commands = [words for words in every if all(any(part in word for word in words) for part in options.words)]
    if options.what == "same":
        return min(1, same(old, new, commands))
    return min(1, speed(old, new, commands, options.rounds, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
