"""A job of a multirun: a training in a process of its own, whichever of Hydra's launchers starts the job.

Thread counts, compilation caches and GPU memory thus do not leak from one training into the next. A complete run is
not trained again. A failed job does not raise, since Hydra's sweeper would end with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ppo_bench.common.cli import EXIT_CODES
from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.common.files import are_complete, first_unfinished, write_json
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import job_config, source_path
from ppo_bench.runs.results import final_return, is_in_use
from ppo_bench.sweeps.child import Failure, train_in_process
from ppo_bench.sweeps.slurm.commands import requeue

OUTCOME = "outcome.json"
"""Name of the file with a job's outcome, in the job's folder."""
FORWARDED = ("hydra.searchpath", "hydra.job.chdir", "hydra.verbose", "hydra.callbacks", "hydra.output_subdir")
"""Keys of Hydra's that the process of a job is given, too."""
POLL_SECONDS = 0.3


class Outcome(NamedTuple):
    """The outcome of a job."""

    state: str
    """One of done, failed, and skipped (it was done before)."""
    overrides: list[str]
    folder: str
    final_return_mean: float | None
    """Mean over the job's runs; None if one has none."""
    error: str = ""


def run_job(composed: DictConfig) -> float | None:
    """Train the job of Hydra's current configuration; returns its `final_return_mean`, None if there is none.

    Raises `KeyboardInterrupt` where this process was asked to stop.
    """
    hydra: Any = HydraConfig.get()
    overrides: Any = OmegaConf.to_container(hydra.overrides.task)
    print_status(f"job {hydra.job.num}: {' '.join(overrides)}")
    try:
        outcome = _train(job_config(composed), overrides)
    except Exception as error:  # such as wrong values that a sweeper has chosen
        said = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {one_line(error)}"
        outcome = Outcome("failed", overrides, "", None, said)
    write_json(Path(hydra.runtime.output_dir) / OUTCOME, outcome._asdict())
    value = outcome.final_return_mean
    print_status(f"job {hydra.job.num}: {outcome.state}, {outcome.error or f'final return {format_return(value)}'}")
    return value


def format_return(final_return_mean: float | None) -> str:
    """A final return as text."""
    return "none, no episode ended" if final_return_mean is None else f"{final_return_mean:.2f}"


def _train(config: Config, overrides: list[str]) -> Outcome:
    """Train the runs of a job, unless they are complete."""
    folders = config.folders
    while True:
        for folder in folders:
            if is_in_use(folder):
                print_status(f"waiting for {folder}, which is being trained by another process")
            while is_in_use(folder):  # perhaps for a sweep that was killed
                time.sleep(POLL_SECONDS)
        if are_complete(folders):
            print(*folders, sep="\n", flush=True)
            return Outcome("skipped", overrides, str(folders[0]), final_return(folders))
        failure = _run_process(overrides)
        if not failure or are_complete(folders):  # some end badly with their result there
            return Outcome("done", overrides, str(folders[0]), final_return(folders))
        # Another process may have taken the folder while this one made its environments.
        if failure.code != EXIT_CODES[ConfigError] or not any(map(is_in_use, folders)):
            return Outcome("failed", overrides, str(first_unfinished(folders)), None, failure.reason)


def _run_process(overrides: Sequence[str]) -> Failure | None:
    """Train in a process, started in the folder of the command; returns its failure, or None."""
    hydra: Any = HydraConfig.get()
    given: Any = OmegaConf.to_container(hydra.overrides.hydra)
    own = [word for word in given if word.lstrip("+~").startswith(FORWARDED)]
    stop_requests: list[int] = []
    main, folder = (source_path(hydra, provider) for provider in ("main", "command-line"))
    options = ["--config-name", hydra.job.config_name, *(["--config-path", main] if main else [])]
    options += ["--config-dir", folder] if folder else []
    words, environment = [*options, *own, *overrides], os.environ | {"HYDRA_FULL_ERROR": "0"}
    failure = train_in_process(words, stop_requests, environment, hydra.runtime.cwd)
    if stop_requests and os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
        requeue()
    if stop_requests:
        raise KeyboardInterrupt
    return failure
