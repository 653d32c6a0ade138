"""The process that runs a script of CleanRL's, its own text, and records its iterations.

python -m ppo_bench.commands.equivalence.against.script FOLDER SCRIPT LEFT_OUT -- ARGUMENT...; FOLDER has a `Supply`,
and receives `iteration_<k>.npz` and `iteration_<k>.json` after each iteration. LEFT_OUT names differences, with commas,
that stay in place.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import torch

from ppo_bench.commands.equivalence.against import interfaces, neutralised, procgen, randomness
from ppo_bench.commands.equivalence.against.running import EnoughError, Script


def main(arguments: list[str]) -> int:
    """Run the script until the last iteration that is compared."""
    folder, script, left_out, _, *own = arguments
    running = Script(Path(script).resolve(), Path(folder).resolve(), set(filter(None, left_out.split(","))))
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64 if running.supply.precision == "float64" else torch.float32)
    for patches in (randomness, interfaces, neutralised):
        patches.install(running)
    if running.path.stem == "ppo_procgen":
        procgen.install(running)
    sys.path[:0] = [str(running.path.parent), str(running.path.parent.parent)]
    sys.argv = [str(running.path), *own]
    os.chdir(tempfile.mkdtemp(dir=running.folder))  # the script writes into its current folder
    warnings.simplefilter("ignore")
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            runpy.run_path(str(running.path), run_name="__main__")
    except EnoughError:
        return 0
    raise SystemExit(f"{running.path.name} has ended before iteration {running.supply.iterations}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
