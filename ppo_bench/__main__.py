"""`python -m ppo_bench [overrides]`: train one run, or a sweep of runs with -m. It is a Hydra application."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ppo_bench.common.cli import Parser, exit_code, overrides_of
from ppo_bench.common.errors import ConfigError, Failed, Interrupted, one_line
from ppo_bench.common.launched import launched
from ppo_bench.common.paths import CONF

if TYPE_CHECKING:
    from ppo_bench.configuration.config import Config

_STARTED_AT = time.perf_counter()
SHOWS = ("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion")
"""Options of Hydra that show something and train nothing."""


def main(arguments: list[str]) -> int:
    """Train, or show what Hydra is asked for, and return the exit code."""
    given = {word.partition("=")[0] for word in arguments}
    if given & {"-m", "--multirun"} and not given & set(SHOWS):
        parser = Parser("python -m ppo_bench", allow_abbrev=False)
        parser.add_overrides("as for a run; a key may have several values")
        parser.add_argument("-m", "--multirun", action="store_true", required=True)
        parser.add_argument("-cn", "--config-name", default="config")
        options = parser.parse_intermixed_args(arguments)
        if launched():
            raise ConfigError("-m starts the processes of each run itself: leave out torchrun")
        from ppo_bench.sweeps.preflight import check_jobs

        if options.config_name == "config":  # else a job is checked as it begins
            check_jobs(overrides_of(options))
        # Hydra's parser takes no overrides on both sides of an option.
        arguments = ["-m", *(word for word in arguments if word not in ("-m", "--multirun"))]
    elif (told := launched()) and told.rank > 0:
        arguments = [*arguments, "hydra.output_subdir=null"]  # rank 0 alone writes
    return application(arguments)


def application(arguments: Sequence[str], program: str = "ppo_bench") -> int:
    """Run the Hydra application with the words of a command line, as `program`, and return the exit code.

    Raises `ConfigError`; with the environment variable HYDRA_FULL_ERROR=1 after a traceback of what Hydra has raised.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    from ppo_bench.configuration.compose import config_error
    from ppo_bench.configuration.hydra_job import job_config
    from ppo_bench.runs.results import final_return

    multirun = bool({"-m", "--multirun"} & set(arguments))
    codes: list[int] = []  # of the training, once it has begun

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def train(composed: DictConfig) -> float | None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            from ppo_bench.sweeps.job import run_job

            return run_job(composed)
        folders: list[Path] = []
        codes.append(1)
        with _environment("HYDRA_FULL_ERROR", shows_all):
            codes[0] = exit_code(lambda _: _train(job_config(composed), folders), [])
        return final_return(folders)

    before, shows_all = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [program, *arguments]
    try:
        with _environment("HYDRA_FULL_ERROR", "1"):  # Hydra raises its errors, and does not end the process
            train()
    except Exception as error:  # Hydra passes on any error of its parser and its YAML files
        if codes or isinstance(error, BrokenPipeError):
            raise
        if shows_all == "1":
            traceback.print_exc()
        wrong = ConfigError, HydraException, OmegaConfBaseException, OSError, ValueError
        if multirun and not isinstance(error, wrong):
            from ppo_bench.sweeps.slurm.commands import refusal

            said = f"the launcher failed: {type(error).__name__}: {one_line(error)}"
            raise refusal(error) if "sbatch: error" in str(error) else Failed(said) from error
        raise config_error(error, arguments) from error
    except SystemExit as error:  # of the parser of the command line, or of the table of a multirun with a failed job
        return int(error.code or 0)
    except KeyboardInterrupt as error:
        if not multirun:
            raise
        raise Interrupted("the sweep stopped; the same command goes on with what is missing") from error
    finally:
        sys.argv = before
    return codes[0] if codes else 0


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """A context in which an environment variable has a value; without one if it is None."""
    before = os.environ.get(name)

    def put(value: str | None) -> None:
        os.environ.pop(name, None)
        os.environ.update({name: value} if value is not None else {})

    put(value)
    try:
        yield
    finally:
        put(before)


def _train(config: Config, folders: list[Path]) -> int:
    """Train the run or the runs of a configuration, print their `folders`, and put them into this list."""
    from ppo_bench.runs.group import require_launched

    require_launched(config)
    with _signals_as_ctrl_c():
        from ppo_bench.runs.train import train

        folders += train(config, _STARTED_AT)
    for folder in folders:
        print(folder)
    return 0


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM, SIGUSR1 and SIGUSR2 act as Ctrl-C does, until the training handles them itself."""
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(code: int) -> NoReturn:
    """End this process. A rank that fails ends at once: an orderly exit of JAX would wait for the other ranks."""
    if code and "RANK" in os.environ:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _exit(exit_code(main, sys.argv[1:]))
