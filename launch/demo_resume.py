#!/usr/bin/env python3
"""Kill and resume: `launch/demo_resume.py` shows that a killed and resumed run ends with the same parameters.

Two trainings of CartPole, each in its own folder: one runs to the end; the other is killed halfway by SIGKILL and then
resumed by the same command. Prints a digest of all arrays of the last checkpoint of each; exits with 1 if they differ.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import RunError
from ppo_bench.runners import checkpoint

STEPS, EVERY = 100_000, 20


def main(arguments: list[str]) -> int:
    """Run both trainings and compare their digests; returns 0 if they are equal, else 1."""
    parser = Parser("python launch/demo_resume.py", description=__doc__)
    parser.add_argument(
        "--outputs",
        type=Path,
        default=Path("outputs/demo-resume"),
        help="its folders straight and killed are replaced (outputs/demo-resume)",
    )
    parser.add_argument("overrides", nargs="*", help="for both runs, such as framework=jax_xla")
    options = parser.parse_intermixed_args(arguments)
    for name in ("straight", "killed"):
        shutil.rmtree(options.outputs / name, ignore_errors=True)
    words = ["env=cartpole", "device=cpu", f"total_timesteps={STEPS}", f"checkpoint.every_iterations={EVERY}"]
    words += options.overrides
    straight = _finished(_command(words, options.outputs / "straight"), "to the end, without a break")
    killed = _command(words, options.outputs / "killed")
    _kill_in_the_middle(killed, options.outputs / "killed")
    resumed = _finished(killed, "the same command again: it resumes")
    digests = {"without a break": _digest(straight), "killed and resumed": _digest(resumed)}
    for name, digest in digests.items():
        print(f"{digest}  {name}")
    same = len(set(digests.values())) == 1
    print("the same parameters, bit for bit" if same else "THE PARAMETERS DIFFER")
    return 0 if same else 1


def _command(words: list[str], outputs: Path) -> list[str]:
    return [sys.executable, "-m", "ppo_bench", *words, f"outputs={outputs}"]


def _finished(command: list[str], about: str) -> Path:
    """Run `command` to its end and return the run's folder. Raises `RunError` if the command fails."""
    print(f"== {about}\n   {_shown(command)}", flush=True)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RunError(done.stderr.strip())
    return Path(done.stdout.split()[-1])


def _kill_in_the_middle(command: list[str], outputs: Path) -> None:
    """Start a training and kill it once it has written half of its rows. Raises `RunError` if it ends before that."""
    print(f"== once more, in another folder; kill -9 in the middle\n   {_shown(command)}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            files = list(outputs.rglob("metrics.jsonl"))
            rows = files[0].read_text().count("\n") if files else 0
            if rows * 512 >= STEPS / 2:
                process.kill()
                print(f"   killed after iteration {rows}", flush=True)
                process.wait()
                return
            time.sleep(0.05)
    raise RunError("the training ended before it could be killed")


def _shown(command: list[str]) -> str:
    return " ".join(["python", *command[1:]])


def _digest(folder: Path) -> str:
    """A digest of every array of the newest checkpoint: parameters, Adam's moments, statistics, counters."""
    return checkpoint.digest(checkpoint.load(checkpoint.find(folder)).arrays)[:32]


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
