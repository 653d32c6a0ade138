"""Several runs by one command: Hydra expands and launches them, each in a process of its own.

Thread counts, compile caches and GPU memory therefore do not leak from one run into the next.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path

import hydra
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from ppo_bench.compose import explain
from ppo_bench.config import load_config
from ppo_bench.errors import ConfigError, Interrupted
from ppo_bench.paths import CONF
from ppo_bench.progress import say
from ppo_bench.results import choose_folder
from ppo_bench.slurm.job import requeue
from ppo_bench.slurm.sbatch import refusal, require_slurm


def sweep(overrides: Sequence[str]) -> int:
    """Run every job of a sweep; 1 if any failed. Raises `ConfigError` for the first that is misconfigured."""
    jobs = expand(overrides)
    results = [_result(job) for job in jobs]
    on_slurm = any(re.fullmatch(r"hydra/launcher=(submitit_)?slurm", override) for override in overrides)
    if on_slurm:
        require_slurm()
        say(f"{len(jobs)} jobs go to SLURM and are waited for; launch/slurm.py submits and returns")
    stop_requests: list[int] = []

    def run_job(_: DictConfig) -> None:
        """One job. A failed one has said why on stderr, and does not stop the others."""
        if stop_requests:
            return
        job = list(HydraConfig.get().overrides.task)
        code = _run([sys.executable, "-m", "ppo_bench", *job], stop_requests)
        if code != 0 and not stop_requests:
            say(f"failed with exit code {code}: {' '.join(job)}")
        if code != 0 and stop_requests and os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
            requeue()

    try:
        # What submitit prints while it waits, it also raises if it matters.
        with _errors_of_hydra_raised(), redirect_stderr(io.StringIO()) if on_slurm else nullcontext():
            hydra_command(["--multirun", *overrides], run_job)
    except Exception as error:  # of a launcher, whatever it meets
        if "sbatch: error" in str(error):
            raise refusal(error) from error
        say(f"the launcher failed: {type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    if stop_requests:
        raise Interrupted("the sweep stopped; the same command goes on with what is missing")
    # A job that a launcher lost has left no exit code; what counts is what is there.
    missing = [" ".join(job) for job, result in zip(jobs, results, strict=True) if not result.exists()]
    say(f"{len(jobs) - len(missing)} of {len(jobs)} runs are done")
    for line in missing:
        say(f"not done: {line}")
    return 1 if missing else 0


def _result(job: Sequence[str]) -> Path:
    """The file that a job leaves when it is done. Raises `ConfigError` if the job is misconfigured."""
    config = load_config(job)
    config.require()
    return choose_folder(config.run_folder, config.root.rerun) / "result.json"


@contextmanager
def _errors_of_hydra_raised() -> Iterator[None]:
    """Hydra raises errors instead of printing them with its part of the traceback."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        del os.environ["HYDRA_FULL_ERROR"]
        if before is not None:
            os.environ["HYDRA_FULL_ERROR"] = before


def _run(command: list[str], stop_requests: list[int]) -> int:
    """The exit code of a child. It is left to end in its own way when this process is asked to stop; so is noted."""
    child = subprocess.Popen(command)

    def note(number: int, _: object) -> None:
        stop_requests.append(number)
        if number == signal.SIGTERM:  # a terminal sends SIGINT to the child too
            child.terminate()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return child.wait()
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: the product of all that are lists (`a,b`), ranges or globs."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()  # which globs are expanded by
            parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
            alternatives = [
                [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
                if override.is_sweep_override()
                else [override.input_line or ""]
                for override in parsed
            ]
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    return [list(job) for job in itertools.product(*alternatives)]


def show_config(arguments: Sequence[str]) -> int:
    """Hydra's own views of a configuration: `--cfg`, `--resolve`, `--package`, `--info`."""
    hydra_command(arguments, lambda _: None)
    return 0


def hydra_command(arguments: Sequence[str], job: Callable[[DictConfig], None]) -> None:
    """Hydra's command line over the project's configuration, with `job` as what it runs."""
    before = sys.argv
    sys.argv = ["ppo_bench", *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
    finally:
        sys.argv = before
