"""The process that runs a script of CleanRL's, its own text, and records its iterations.

python -m ppo_bench.commands.equivalence.cleanrl.process FOLDER OVERRIDE...; FOLDER receives `<rank>/<k>.npz` after
iteration k.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ppo_bench.commands.equivalence.cleanrl.arguments import arguments_of
from ppo_bench.commands.equivalence.cleanrl.config import load, script_path
from ppo_bench.commands.equivalence.cleanrl.script import LastIterationError, Script, install_module
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.configuration.config import Config


def main(arguments: list[str]) -> int:
    """Run the script until the last iteration that is compared."""
    folder, config = Path(arguments[0]).resolve(), load(arguments[1:])
    path = script_path(config)
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    script = (_jax_script if SCRIPTS[path.stem].in_jax else _torch_script)(config, folder)
    _install_writer(script)
    os.chdir(tempfile.mkdtemp(dir=folder))  # the script writes into its current folder
    warnings.simplefilter("ignore")
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            script.run([*arguments_of(path, config), *script.root.arguments])
    except LastIterationError:
        return 0
    raise SystemExit(f"{path.name} has ended before iteration {script.root.iterations}")


def _torch_script(config: Config, folder: Path) -> Script:
    """A script that learns with PyTorch, with its patches."""
    import torch

    from ppo_bench.commands.equivalence.cleanrl import gym_compat, torch_patches
    from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript

    torch.set_num_threads(1)
    script = TorchScript(config, folder)
    torch_patches.install(script)
    gym_compat.install(script)
    for module in script.spec.patches:
        importlib.import_module(f"{__package__}.{module}").install(script)
    return script


def _jax_script(config: Config, folder: Path) -> Script:
    """A script that learns with JAX, with its patches."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    import jax

    jax.config.update("jax_enable_x64", config.root.precision == "float64")
    from ppo_bench.commands.equivalence.cleanrl import jax_script

    script = jax_script.JaxScript(config, folder)
    jax_script.install(script)
    return script


def _install_writer(script: Script) -> None:
    """Put a module `torch.utils.tensorboard` in place."""

    class SummaryWriter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            script.used.add("writer")

        def add_text(self, *arguments: Any) -> None:
            pass

        def add_scalar(self, tag: str, *arguments: Any) -> None:
            if tag == "charts/learning_rate":
                script.end_iteration()

        def close(self) -> None:
            pass

    install_module("torch.utils.tensorboard", SummaryWriter=SummaryWriter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
