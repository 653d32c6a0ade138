"""The process that runs a script of CleanRL's, its own text, with its patches, and records its iterations."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import chdir, redirect_stdout
from tempfile import TemporaryDirectory
from typing import Any

from ppo_bench.commands.equivalence.cleanrl.config import arguments_of, script_path
from ppo_bench.commands.equivalence.cleanrl.script import LastIterationError, Record, Script, install_module
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.common.errors import ConfigError, RunError, one_line
from ppo_bench.configuration.config import Config


def run_script(config: Config) -> Generator[list[Record], None, None]:
    """Run the script until the last iteration that is compared; yield its records.

    Raises `RunError` with what the script has raised.
    """
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    path = script_path(config)
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    script = (_jax_script if SCRIPTS[path.stem].in_jax else _torch_script)(config)
    _install_writer(script)
    warnings.simplefilter("ignore")
    # The script writes into its current folder.
    with TemporaryDirectory() as folder, chdir(folder), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            script.run([*arguments_of(path, config), *script.root.arguments])
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise RunError(f"{path.name}: {type(error).__name__}: {one_line(error)}") from error
        except LastIterationError:
            pass
        else:
            raise RunError(f"{path.name} has ended before iteration {script.root.iterations}")
    yield script.records


def _torch_script(config: Config) -> Script:
    """A script that learns with PyTorch, with its patches."""
    import torch

    from ppo_bench.commands.equivalence.cleanrl import gym_compat, torch_patches
    from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript

    torch.set_num_threads(1)
    script = TorchScript(config)
    torch_patches.install(script)
    gym_compat.install(script)
    for module in script.spec.patches:
        importlib.import_module(f"{__package__}.{module}").install(script)
    return script


def _jax_script(config: Config) -> Script:
    """A script that learns with JAX, with its patches."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    import jax

    jax.config.update("jax_enable_x64", config.root.precision == "float64")
    from ppo_bench.commands.equivalence.cleanrl import jax_script

    script = jax_script.JaxScript(config)
    jax_script.install(script)
    return script


def _install_writer(script: Script) -> None:
    """Put a module `torch.utils.tensorboard` in place."""

    class SummaryWriter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            pass

        def add_text(self, *arguments: Any) -> None:
            pass

        def add_scalar(self, tag: str, *arguments: Any) -> None:
            if tag == "charts/learning_rate":
                script.end_iteration()

        def close(self) -> None:
            pass

    install_module("torch.utils.tensorboard", SummaryWriter=SummaryWriter)
