"""Two checkouts side by side: do they train the same, and which is faster?

    python -m tests.two_trees same OLD NEW [WORD...]                what 14 runs leave behind, bit for bit
    python -m tests.two_trees lockstep OLD NEW [WORD...]            runs of every kind in float64, to within rounding
    python -m tests.two_trees speed OLD NEW [WORD...] --rounds 10   seconds of an iteration, in alternation

`WORD...` choose the commands that contain all of them. Both checkouts are run by this Python, whose packages they
share; nothing is imported from either. `same` exits 1 if rows, but for times, arrays of checkpoints or names of run
folders differ; `lockstep` if a distance is above 1e-10, of the parameters' movement or of the array or column; `speed`
if an interval of a ratio new / old lies below 0.97.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.two_trees.cases import CASES, FRAMEWORKS, RUNS
from tests.two_trees.lockstep import TOLERANCE, lockstep
from tests.two_trees.speed import speed

TIMED = [
    *([f"framework={framework}", "env=breakout", "backend=envpool"] for framework in FRAMEWORKS),
    ["framework=torch_eager", "env=cartpole", "backend=gymnasium"],
    ["framework=torch_compile", "env=cartpole", "backend=gymnasium"],
    ["framework=torch_compile", "env=cartpole", "backend=envpool"],
    ["framework=jax_xla", "env=cartpole", "backend=device"],
    ["framework=torch_compile", "env=hopper", "backend=envpool"],
    ["framework=torch_compile", "experiment=cleanrl/ppo_atari_lstm"],
    ["framework=torch_compile", "experiment=cleanrl/ppo_trxl_proof_of_memory", "ppo.num_envs=4"],
]


def _chosen(commands: Sequence[Sequence[str]], words: Sequence[str]) -> list[Sequence[str]]:
    return [command for command in commands if all(any(part in word for word in command) for part in words)]


def main() -> int:
    """See the module's docstring."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "lockstep", "speed"))
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--pairs", type=int, default=3, help="processes of each tree, one after the other")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each process")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    trees = options.old.resolve(), options.new.resolve()
    for tree in trees:
        if not (tree / "ppo_bench" / "__init__.py").exists():
            parser.error(f"{tree} is not a checkout: it has no ppo_bench/__init__.py")
    everything = RUNS if options.what == "same" else CASES
    cases = [case for case in everything if _chosen([(case.name, *case.words)], options.words)]
    commands = _chosen(TIMED, options.words)
    if not (commands if options.what == "speed" else cases):
        parser.error(f"no command contains all of: {' '.join(options.words)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that trainings are ended
    if options.what != "speed":
        return min(1, lockstep(*trees, cases, 0.0 if options.what == "same" else TOLERANCE))
    return min(1, speed(*trees, commands, pairs=options.pairs, rounds=options.rounds, seconds=options.seconds))


if __name__ == "__main__":
    sys.exit(main())
