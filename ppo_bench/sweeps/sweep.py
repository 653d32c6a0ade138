"""Sweeps: several runs by one command. Jobs are expanded here or chosen by a sweeper; Hydra's launchers run them.

Each job runs in a process of its own, so that thread counts, compilation caches and GPU memory do not leak from one run
into the next. Complete jobs are not launched again.
"""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr
from datetime import datetime
from functools import partial
from pathlib import Path

from hydra.errors import HydraException

from ppo_bench.common.errors import ConfigError, Interrupted, one_line
from ppo_bench.common.files import are_complete, make_folder
from ppo_bench.common.progress import say
from ppo_bench.configuration.compose import explain, of_hydra, search_path
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import corner, sweep_jobs
from ppo_bench.sweeps.journal import STATES, JobOutcome, Journal, failures_reported, finished, print_table
from ppo_bench.sweeps.launchers import launch, require_one_task, search, with_defaults
from ppo_bench.sweeps.preflight import check_environments
from ppo_bench.sweeps.slurm.sbatch import refusal, require_slurm
from ppo_bench.sweeps.sweep_job import VISIBLE_DEVICES, SweepJob


def sweep(overrides: Sequence[str]) -> int:
    """Run all jobs of a sweep; returns 1 if one failed, else 0. Raises `ConfigError` for the first wrong one."""
    own = of_hydra(overrides)
    words = [word for word in overrides if word not in own]
    own = with_defaults(own)
    on_slurm = any(re.fullmatch(r"hydra/launcher=(submitit_)?slurm", word) for word in own)
    searching = any(re.fullmatch(r"hydra/sweeper=(?!basic$).*", word) for word in own)
    for word in own:
        if word.startswith("hydra.sweeper.params") and not searching:
            raise ConfigError(f"{word}: an experiment's own; give the values as they are, as in seed=1,2")
    path = search_path(own)
    jobs = [corner(words)] if searching else sweep_jobs([*path, *words])
    jobs = [[word for word in job if word not in path] for job in jobs]
    configs = [(load_config([*own, *job]), job) for job in jobs]
    planned: dict[tuple[Path, ...], list[str]] = {}
    for config, job in configs:
        config.require()
        if searching and config.grid:
            raise ConfigError("grid: a search judges one set of hyperparameters at a time; leave it out")
        planned.setdefault(tuple(config.folders), job)
    if len(planned) < len(configs):
        say(f"warning: {len(configs)} jobs are only {len(planned)} runs; what tells the others apart changes no run")
    outputs = Path(configs[0][0].root.outputs)
    done = [folders for folders in planned if are_complete(folders)]
    todo = {folders: job for folders, job in planned.items() if folders not in done}
    check_environments(config for config, _ in configs if tuple(config.folders) in todo)
    if on_slurm:
        require_slurm()
        require_one_task(own)
        say(f"{len(todo)} jobs go to SLURM and are waited for; launch/slurm.py submits and returns")
    trouble = None  # error of a search's launcher, which may have lost an unknown number of jobs
    if searching:
        outcomes, trouble = _run(outputs, on_slurm, partial(search, own, words))
    else:
        outcomes = [_skipped(planned[folders], folders) for folders in done]
        for folders in done:
            print(folders[0], flush=True)
        if todo:
            ended, why = _run(outputs, on_slurm, partial(launch, own, list(todo.values())))
            outcomes += ended + _lost(todo, ended, why)
    print_table(outcomes)
    states = [outcome.state for outcome in outcomes]
    say(", ".join(f"{states.count(state)} {state}" for state in STATES))
    return 1 if "failed" in states or not states or trouble else 0


def _skipped(job: list[str], folders: Sequence[Path]) -> JobOutcome:
    """The outcome of a job that was complete before; it counts as failed if its result is damaged."""
    try:
        return finished("skipped", job, folders)[0]
    except ConfigError as error:
        return JobOutcome("failed", job, str(folders[0]), one_line(error))


def _run(outputs: Path, on_slurm: bool, start: Callable[[SweepJob], None]) -> tuple[list[JobOutcome], str | None]:
    """The outcomes of the jobs that `start` launches, and the error of the launcher, if any. Raises `Interrupted`."""
    journal = _journal(outputs)
    sweep_process = None if on_slurm else os.getpid()
    job = SweepJob(journal.path, sweep_process=sweep_process, visible_devices=os.environ.get(VISIBLE_DEVICES))
    trouble = None
    # On SLURM, messages of submitit are hidden; it raises the important ones too.
    silence = redirect_stderr(io.StringIO()) if on_slurm else nullcontext()
    try:
        with failures_reported(journal), silence:
            start(job)
    except KeyboardInterrupt:
        job.stop_requests.append(signal.SIGINT)
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    except Exception as error:  # launchers can raise anything
        if "sbatch: error" in str(error):
            raise refusal(error) from error
        trouble = f"{type(error).__name__}: {one_line(error)}"
        say(f"the launcher failed: {trouble}" + ("; jobs that are queued or running go on" if on_slurm else ""))
    if job.stop_requests:
        submitted = "; jobs that are queued or running go on: scancel them first" if on_slurm else ""
        raise Interrupted(f"the sweep stopped; the same command goes on with what is missing{submitted}")
    return journal.outcomes(), trouble


def _lost(
    todo: dict[tuple[Path, ...], list[str]], ended: Sequence[JobOutcome], trouble: str | None
) -> list[JobOutcome]:
    """Outcomes of jobs without an entry in the journal, which a launcher has lost: done if their results are there."""
    known = [outcome.words for outcome in ended]
    return [
        finished("done", job, folders)[0]
        if are_complete(folders)
        else JobOutcome("failed", job, str(folders[0]), trouble or "the launcher lost it")
        for folders, job in todo.items()
        if job not in known
    ]


def _journal(outputs: Path) -> Journal:
    """A new, empty journal for a sweep. Raises `ConfigError` if its file cannot be written."""
    folder = outputs / ".sweeps"
    make_folder(folder)
    path = folder / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{os.getpid()}.jsonl"
    path.touch()
    return Journal(path)
