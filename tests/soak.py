"""The whole campaign of faults, whose short form is test_faults.py: python -m tests.soak [PART ...].

Prints what docs/reliability.md reports, and exits with 1 if a promise is broken. Two runs at a time; about an hour.
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.runners import checkpoint
from ppo_bench.runs.distributed import build_runner
from tests.faults import configured, finish, folder_of, kill_and_restart, resume_damaged, started_run
from tests.mutations import mutated, run_mutated
from tests.training import learnt

AT_ONCE, KILLS, CONFIGURATIONS, DAMAGES = 2, 20, 200, 100
CARTPOLE = ["env=cartpole", "total_timesteps=245760", "checkpoint.every_iterations=20"]
IN_JAX = ["env=cartpole", "total_timesteps=4915200", "checkpoint.every_iterations=400"]  # ten times as fast
BREAKOUT = ["env=breakout", "total_timesteps=36864", "checkpoint.every_iterations=1"]
RUNS = [
    *([*CARTPOLE, f"backend={b}", f"framework={f}"] for b in ("gymnasium", "envpool") for f in FRAMEWORKS),
    [*IN_JAX, "backend=device", "framework=jax_xla"],
    *([*BREAKOUT, "backend=envpool", f"framework={f}"] for f in FRAMEWORKS),
]


def kills() -> Iterator[str]:
    """Every pair of backend and framework, killed and restarted; a row each."""
    yield "| run | iterations | killed after iteration | final parameters, metrics, episodes |"
    yield "|---|---|---|---|"

    def row(run: list[str]) -> str:
        with tempfile.TemporaryDirectory() as outputs:
            whole, killed = ([*run, f"outputs={outputs}/{name}"] for name in ("whole", "killed"))
            assert finish(whole).returncode == 0
            seconds = 2.0 if BREAKOUT[0] in run else 0.05
            moments = kill_and_restart(killed, KILLS, random.Random(str(run)), seconds)
            same = learnt(folder_of(whole)) == learnt(folder_of(killed))
        words = " ".join(word for word in run if word.split("=")[0] in ("env", "backend", "framework"))
        verdict = "the same bit for bit" if same else "BROKEN: they differ"
        return f"| `{words}` | {configured(run).num_iterations} | {', '.join(map(str, moments))} | {verdict} |"

    yield from _in_parallel(row, RUNS)


def configurations() -> Iterator[str]:
    """Configurations at random; how many ended how."""
    rng = random.Random(1)

    def outcome(overrides: list[str]) -> str:
        with tempfile.TemporaryDirectory() as cwd:
            return run_mutated(overrides, Path(cwd))

    yield from _counted(outcome, [mutated(rng) for _ in range(CONFIGURATIONS)], "configurations")


def damages() -> Iterator[str]:
    """Damaged folders of a run that was stopped and of one that was finished; how many ended how."""
    run = [*CARTPOLE[:1], "total_timesteps=61440", "checkpoint.every_iterations=10", "backend=gymnasium"]
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder)
        whole = [*run, f"outputs={outputs}/whole"]
        assert finish(whole).returncode == 0
        originals = [folder_of(whole), started_run([*run, f"outputs={outputs}/stopped"], 45)]
        reference = learnt(originals[0])

        def outcome(k: int) -> str:
            original = originals[k % 2]
            done, ended = resume_damaged(original, reference, run, outputs / f"damaged{k}", random.Random(k))
            shutil.rmtree(outputs / f"damaged{k}")
            return f"{done.split(':')[0]}: {ended}"

        yield from _counted(outcome, list(range(DAMAGES)), "damaged folders")


def cost() -> Iterator[str]:
    """What checkpoints and the restarts after them take of a Breakout run, at the interval of its file."""
    for framework in FRAMEWORKS:
        config = configured(["env=breakout", f"framework={framework}"])
        every = config.root.checkpoint.every_iterations
        runner, *_ = build_runner(config, config.framework.runner)
        iterations, pauses = [], []
        with tempfile.TemporaryDirectory() as folder:
            state = runner.init(1)
            for k in range(1, 9):
                started = time.perf_counter()
                state, _, _ = runner.iterate(state)
                iterations.append(time.perf_counter() - started)
                started = time.perf_counter()
                saved = checkpoint.Checkpoint(runner.export(state), {"iteration": k})
                checkpoint.save(Path(folder), k, saved)
                checkpoint.prune(Path(folder), keep=2)
                state = runner.restart_envs(state)
                pauses.append(time.perf_counter() - started)
        runner.close()
        pause, interval = statistics.median(pauses), statistics.median(iterations) * every
        broken = "" if pause < 0.01 * interval else " BROKEN"
        yield (
            f"- {framework}: {pause:.2f} s for a checkpoint and a restart, {interval:.0f} s for the {every} iterations "
            f"between two: {100 * pause / interval:.2f}%{broken}"
        )


PARTS = {part.__name__: part for part in (cost, kills, configurations, damages)}


def main(arguments: list[str]) -> int:
    """Run the parts, print what they yield as it comes; 1 if something was broken."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    choices = (*PARTS, "all")
    parser.add_argument("parts", nargs="*", metavar="PART", choices=choices, default="all", help=", ".join(choices))
    chosen = parser.parse_args(arguments).parts
    broken = False
    for name in PARTS if "all" in chosen else chosen:
        print(f"\n{PARTS[name].__doc__}\n", flush=True)
        started = time.monotonic()
        for line in PARTS[name]():
            print(line, flush=True)
            broken |= "BROKEN" in line
        print(f"\n({name}: {time.monotonic() - started:.0f} s)", flush=True)
    print("a promise was broken" if broken else "every promise was kept")
    return int(broken)


def _in_parallel(work: Callable[[Any], str], items: Sequence[Any]) -> Iterator[str]:
    """The results in the order of the items; an exception is one too."""

    def guarded(item: Any) -> str:
        try:
            return work(item)
        except Exception as error:
            return f"BROKEN: {item}: {type(error).__name__}: {error}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(guarded, items)


def _counted(work: Callable[[Any], str], items: Sequence[Any], what: str) -> Iterator[str]:
    ended = collections.Counter(_in_parallel(work, items))
    yield f"{len(items)} {what}:"
    yield from (f"- {count} {outcome}" for outcome, count in sorted(ended.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
