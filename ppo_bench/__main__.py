"""`python -m ppo_bench [overrides]`: train one run, or a sweep of runs with -m. It is a Hydra application."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError, RunError, RunInterrupted, one_line
from ppo_bench.common.files import remove_unstarted
from ppo_bench.common.paths import CONF
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.configuration.compose import config_error
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import job_config
from ppo_bench.runs.results import final_return, is_in_use
from ppo_bench.sweeps.callback import print_outcomes
from ppo_bench.sweeps.job import run_job

MULTIRUN = {"-m", "--multirun"}
PATH_OPTIONS = {"-cp", "--config-path", "-cd", "--config-dir", "--experimental-rerun"}
"""Options of Hydra's whose value is a path, in which there may be an equals sign."""
OVERRIDE = re.compile(r"(~|\+{1,2})?[A-Za-z_][^=]*=|~")
_STARTED_AT = time.perf_counter()


def main(arguments: list[str]) -> int:
    """Train, or do what else Hydra is asked for, and return the exit code."""
    rank_info = read_rank_info()
    overrides, options = list[str](), list[str]()
    for before, word in zip(["", *arguments], arguments, strict=False):
        (overrides if OVERRIDE.match(word) and before not in PATH_OPTIONS else options).append(word)
    if MULTIRUN & set(options) and rank_info:
        raise ConfigError("-m starts the processes of each run itself: leave out torchrun")
    if rank_info and rank_info.rank > 0:
        overrides.append("hydra.output_subdir=null")  # rank 0 alone writes
    return application([*overrides, *options])  # Hydra's parser takes no overrides on both sides of an option


def application(arguments: Sequence[str], program: str = "ppo_bench") -> int:
    """Run the Hydra application with the words of a command line, as `program`, and return the exit code.

    Raises `ConfigError`; with the environment variable HYDRA_FULL_ERROR=1 after a traceback of what Hydra has raised.
    """
    codes, swept = list[int](), list[str]()  # of the training, and folder of the sweep, once one has begun

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def train(composed: DictConfig) -> float | None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            swept.append(HydraConfig.get().sweep.dir)
            return run_job(composed)
        folders: list[Path] = []
        codes.append(1)
        codes[0] = exit_code(lambda _: _train(composed, folders), [])
        return final_return(folders)

    multirun = not {*MULTIRUN, "hydra.mode=MULTIRUN"}.isdisjoint(arguments)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # until a training handles them itself
        signal.signal(number, signal.default_int_handler)
    before, shows_all = sys.argv, os.environ.get("HYDRA_FULL_ERROR", "0")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = [program, *arguments], "1"  # Hydra raises its errors, and does not exit
    try:
        train()
    except SystemExit as end:  # of the parser of the command line, or of the callback of a multirun
        if isinstance(end.code, Exception):
            raise end.code from end
        return 2 if end.code else 0
    except KeyboardInterrupt as error:
        if not (multirun or swept):
            raise
        raise RunInterrupted("the sweep stopped; the same command goes on with what is missing") from error
    except Exception as error:  # Hydra passes on any error of its parser and its YAML files
        if codes or isinstance(error, BrokenPipeError):
            raise
        if shows_all == "1":
            traceback.print_exc()
        if swept:  # of a search in which no trial has a return
            print_outcomes(swept[0], {})
            raise RunError(f"the sweep failed: {one_line(error)}") from error
        if multirun and not isinstance(error, (HydraException, OmegaConfBaseException, OSError, ValueError)):
            from ppo_bench.sweeps.slurm.commands import refusal

            failure = RunError(f"the launcher failed: {type(error).__name__}: {one_line(error)}")
            raise refusal(error) if "sbatch: error" in str(error) else failure from error
        raise config_error(error, arguments) from error
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = before, shows_all
    return codes[0] if codes else 0


def _train(composed: DictConfig, folders: list[Path]) -> int:
    """Train the run or the runs of a configuration, print their folders, and put them into the list `folders`."""
    config: Config | None = None
    rank_info = read_rank_info()
    try:
        config = job_config(composed)
        from ppo_bench.runs.train import train

        with chdir("."):  # an environment may change the current folder
            folders += train(config, _STARTED_AT)
    except (ConfigError, KeyboardInterrupt):
        folder = Path(HydraConfig.get().runtime.output_dir)
        if not (rank_info and rank_info.rank) and not is_in_use(folder):
            remove_unstarted(folder, levels=3 if config and config.run_dir is None else 0)
        raise
    for folder in folders:
        print(folder)
    return 0


def _exit(code: int) -> NoReturn:
    """End this process. A rank that fails ends at once: an orderly exit of JAX would wait for the other ranks."""
    if code and "RANK" in os.environ:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _exit(exit_code(main, sys.argv[1:]))
