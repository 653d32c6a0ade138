"""The process that runs a script of CleanRL's, its own text, and records its iterations.

python -m ppo_bench.commands.equivalence.cleanrl.process FOLDER SCRIPT LEFT_OUT -- ARGUMENT...; FOLDER has a `Supply`,
and receives `<rank>/<k>.npz` and `<rank>/<k>.json` after iteration k. LEFT_OUT names differences, with commas, that
stay in place.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import torch

from ppo_bench.commands.equivalence.cleanrl import gym_compat, interfaces, randomness, torch_patches
from ppo_bench.commands.equivalence.cleanrl.script import EnoughError, Script
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.commands.equivalence.cleanrl.supply import Supply
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript


def main(arguments: list[str]) -> int:
    """Run the script until the last iteration that is compared."""
    folder, script, left_out, _, *own = arguments
    given = Path(script).resolve(), Path(folder).resolve(), set(filter(None, left_out.split(",")))
    running = _in_jax(*given) if SCRIPTS[given[0].stem].in_jax else _in_torch(*given)
    interfaces.install_writer(running)
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


def _in_torch(path: Path, folder: Path, left_out: set[str]) -> Script:
    """A script that learns with PyTorch, and its patches."""
    torch.set_num_threads(1)
    running = TorchScript(path, folder, left_out)
    if running.supply.precision == "float64":
        interfaces.install_float64(running)
    for patches in (randomness, torch_patches, gym_compat):
        patches.install(running)
    for module in running.known.patches:
        importlib.import_module(f"{__package__}.{module}").install(running)
    return running


def _in_jax(path: Path, folder: Path, left_out: set[str]) -> Script:
    """A script that learns with JAX, and its patches."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    import jax

    jax.config.update("jax_enable_x64", Supply.load(folder)[0].precision == "float64")
    from ppo_bench.commands.equivalence.cleanrl import jax_script

    running = jax_script.JaxScript(path, folder, left_out)
    jax_script.install(running)
    return running


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
