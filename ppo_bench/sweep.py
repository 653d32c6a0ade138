"""Several runs by one command: expanded here or chosen by a sweeper, and launched by Hydra's launchers.

Each runs in a process of its own, so that thread counts, compile caches and GPU memory do not leak from one run into
the next. What is done already is not launched again.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from ppo_bench.compose import explain
from ppo_bench.config import load_config
from ppo_bench.errors import ConfigError, Interrupted, require
from ppo_bench.paths import CONF
from ppo_bench.progress import say
from ppo_bench.results import choose_folder, read_json
from ppo_bench.slurm.sbatch import refusal, require_slurm
from ppo_bench.sweep_job import POLL_SECONDS, Job, Journal, Outcome, divide

PLUGINS = {
    # As many runs at a time as there are CPUs; a worker takes one after the other, not several at once.
    "hydra/launcher=joblib": (
        "hydra_plugins.hydra_joblib_launcher",
        ["hydra.launcher.n_jobs=-1", "hydra.launcher.batch_size=1"],
    ),
    # Runs wait for their CPUs within the time limit.
    "hydra/launcher=submitit_local": (
        "hydra_plugins.hydra_submitit_launcher",
        ["hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=525600"],
    ),
    # Returns are to be high; with a seed the same command asks for the same trials again; a failed run ends nothing.
    "hydra/sweeper=optuna": (
        "hydra_plugins.hydra_optuna_sweeper",
        [
            "hydra.sweeper.direction=maximize",
            "hydra.sweeper.n_jobs=1",
            "hydra.sweeper.max_failure_rate=1.0",
            "hydra.sweeper.sampler.seed=1",
        ],
    ),
}
"""Where Hydra's choices come from, and the values that they have here unless the command line gives others."""
SUBMITTED_AT_A_TIME = 8
"""Jobs that submitit starts for each that can run: each waits in a process, and a thousand would fill the memory."""


def sweep(overrides: Sequence[str]) -> int:
    """Run every job of a sweep; 1 if any failed. Raises `ConfigError` for the first that is misconfigured."""
    own = [word for word in overrides if word.startswith(("hydra/", "hydra."))]
    words = [word for word in overrides if word not in own]
    for choice in PLUGINS.keys() & own:
        module, defaults = PLUGINS[choice]
        require(module, "sweeps", choice)
        own = [*defaults, *own]
    on_slurm = any(re.fullmatch(r"hydra/launcher=(submitit_)?slurm", word) for word in own)
    chosen_by_sweeper = any(re.fullmatch(r"hydra/sweeper=(?!basic$).*", word) for word in own)
    jobs = [_corner(words)] if chosen_by_sweeper else expand(words)
    folders: dict[Path, list[str]] = {}
    for job in jobs:
        folders.setdefault(_folder([*own, *job]), job)
    todo = {folder: job for folder, job in folders.items() if not (folder / "result.json").exists()}
    if on_slurm:
        require_slurm()
        say(f"{len(todo)} jobs go to SLURM and are waited for; launch/slurm.py submits and returns")
    journal = _journal([*own, *jobs[0]])
    outcomes = [] if chosen_by_sweeper else [_skipped(job, path) for path, job in folders.items() if path not in todo]
    for outcome in outcomes:
        print(outcome.folder, flush=True)
    run = Job(journal.path, sweep_process=None if on_slurm else os.getpid())
    trouble = None
    if chosen_by_sweeper or todo:
        with _failures_reported(journal):
            trouble = _launch(own, words if chosen_by_sweeper else list(todo.values()), run, on_slurm)
    if run.stop_requests:
        raise Interrupted("the sweep stopped; the same command goes on with what is missing")
    outcomes += journal.outcomes()
    # A job that a launcher lost has left no outcome; what counts is what is there.
    known = {Path(outcome.folder) for outcome in outcomes}
    for folder, job in () if chosen_by_sweeper else todo.items():
        if folder not in known:
            done = (folder / "result.json").exists()
            lost = Outcome("failed", job, str(folder), trouble or "the launcher lost it")
            outcomes.append(_skipped(job, folder)._replace(state="done") if done else lost)
    _print_table(outcomes)
    states = [outcome.state for outcome in outcomes]
    say(", ".join(f"{states.count(state)} {state}" for state in ("done", "failed", "skipped")))
    return 1 if "failed" in states or not states else 0


def _folder(job: Sequence[str]) -> Path:
    """The folder of a job's run. Raises `ConfigError` if the job is misconfigured."""
    config = load_config(job)
    config.require()
    return choose_folder(config.run_folder, config.root.rerun)


def _skipped(words: list[str], folder: Path) -> Outcome:
    value = read_json(folder / "result.json").get("final_return_mean")
    return Outcome("skipped", words, str(folder), "no episode ended" if value is None else f"{value:.2f}")


def _journal(job: Sequence[str]) -> Journal:
    """A new file for this sweep's outcomes. Raises `ConfigError` if it cannot be written."""
    outputs = load_config(job).root.outputs
    folder = Path(outputs) / ".sweeps"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{os.getpid()}.jsonl"
        path.touch()
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another folder by outputs=") from error
    return Journal(path)


def _launch(own: Sequence[str], jobs: Any, run: Job, on_slurm: bool) -> str | None:
    """Have Hydra run the jobs, or if these are words alone what its sweeper makes of them; what went wrong, or None."""
    by_sweeper = isinstance(jobs[0], str)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            words = [*own, *(jobs if by_sweeper else jobs[0])]
            config = loader.load_configuration("config", words, RunMode.MULTIRUN)
            context = HydraContext(config_loader=loader, callbacks=Callbacks())
            at_once = _share_cpus(config, run, len(jobs), by_sweeper)
            # What submitit prints while it waits, it also raises if it matters.
            with redirect_stderr(io.StringIO()) if on_slurm else nullcontext():
                if by_sweeper:
                    _quieten(config.hydra.sweeper._target_)
                    Path(config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
                    sweeper = Plugins.instance().instantiate_sweeper(
                        hydra_context=context, task_function=run, config=config
                    )
                    sweeper.sweep(list(config.hydra.overrides.task))
                    return None
                launcher = Plugins.instance().instantiate_launcher(context, run, config)
                size = SUBMITTED_AT_A_TIME * at_once if config.hydra.launcher._target_.endswith("LocalLauncher") else 0
                for start in range(0, len(jobs), size or len(jobs)):
                    launcher.launch(jobs[start : start + (size or len(jobs))], start)
    except KeyboardInterrupt:
        run.stop_requests.append(0)
    except Exception as error:  # of a launcher, whatever it meets
        if "sbatch: error" in str(error):
            raise refusal(error) from error
        if isinstance(error, HydraException):
            raise ConfigError(explain(error)) from error
        trouble = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
        say(f"the launcher failed: {trouble}")
        return trouble
    return None


def _quieten(sweeper: str) -> None:
    if sweeper.endswith("OptunaSweeper"):
        import optuna

        optuna.logging.set_verbosity(logging.WARNING)


def _share_cpus(config: DictConfig, run: Job, jobs: int, by_sweeper: bool) -> int:
    """Divide this machine's CPUs among the jobs that run at the same time; how many do."""
    launcher, cpus = config.hydra.launcher, sorted(os.sched_getaffinity(0))
    if launcher._target_.endswith("JoblibLauncher"):
        asked = launcher.n_jobs if launcher.n_jobs > 0 else len(cpus)
    elif launcher._target_.endswith("LocalLauncher"):
        asked = len(cpus) // (launcher.cpus_per_task or 1)
    else:
        return 1
    at_once = max(1, min(asked, len(cpus), config.hydra.sweeper.n_jobs if by_sweeper else jobs))
    if "n_jobs" in launcher:
        launcher.n_jobs = at_once
    run.shares = divide(cpus, at_once)
    if at_once > 1:
        each = "1 CPU" if len(run.shares[0]) == 1 else f"{len(run.shares[0])} CPUs"
        say(
            f"warning: {at_once} runs at a time, {each} each: their speeds cannot be compared with those of a run alone"
        )
    return at_once


@contextmanager
def _failures_reported(journal: Journal) -> Iterator[None]:
    """Say at once which jobs fail and why, wherever they run."""
    over = threading.Event()

    def report() -> None:
        reported = 0
        while True:
            last = over.wait(POLL_SECONDS)
            outcomes = journal.outcomes()
            for outcome in outcomes[reported:]:
                if outcome.state == "failed":
                    say(f"failed: {' '.join(outcome.words)}: {outcome.detail}")
            reported = len(outcomes)
            if last:
                return

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


def _print_table(outcomes: Sequence[Outcome]) -> None:
    """A row for each job: its state, what sets it apart from the others, its return or its error."""
    shared = set.intersection(*(set(outcome.words) for outcome in outcomes)) if len(outcomes) > 1 else set()
    table = Table(box=None)
    for column in ("state", "job", "final return or error"):
        table.add_column(column, overflow="fold")
    colours = {"done": "green", "failed": "red", "skipped": "dim"}
    for outcome in outcomes:
        words = " ".join(word for word in outcome.words if word not in shared)
        table.add_row(f"[{colours[outcome.state]}]{outcome.state}", words, outcome.detail)
    console = Console(stderr=True, markup=True)
    console = console if console.is_terminal else Console(stderr=True, width=200)
    console.print(table)


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: the product of all that are lists (`a,b`), ranges or globs."""
    try:
        with _parsed(overrides) as parsed:
            alternatives = [
                [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
                if override.is_sweep_override()
                else [override.input_line or ""]
                for override in parsed
            ]
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    return [list(job) for job in itertools.product(*alternatives)]


def _corner(overrides: Sequence[str]) -> list[str]:
    """One job of those that a sweeper may choose: of each list its first value, of each interval its start."""
    try:
        with _parsed(overrides) as parsed:
            return [
                f"{override.get_key_element()}={_first(override)}"
                if override.is_sweep_override()
                else override.input_line or ""
                for override in parsed
            ]
    except HydraException as error:
        raise ConfigError(explain(error)) from error


def _first(override: Override) -> Any:
    if override.is_interval_sweep():
        interval: Any = override.value()
        return interval.start
    return next(override.sweep_string_iterator())


@contextmanager
def _parsed(overrides: Sequence[str]) -> Iterator[list[Override]]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()  # which globs are expanded by
        yield OverridesParser.create(loader).parse_overrides(list(overrides))


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
