"""Use of Hydra's launchers and sweepers, and division of CPUs among jobs that run at the same time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.paths import CONF
from ppo_bench.common.progress import say
from ppo_bench.common.values import quoted
from ppo_bench.configuration.compose import readable
from ppo_bench.sweeps.sweep_job import SweepJob
from ppo_bench.tuning.cores import cores_of_process, part_of_cores

PLUGINS = {
    # As many workers as there are CPUs; each takes one job at a time.
    "hydra/launcher=joblib": (
        "hydra_plugins.hydra_joblib_launcher",
        ["hydra.launcher.n_jobs=-1", "hydra.launcher.batch_size=1"],
    ),
    # The time limit includes waiting for CPUs, so it is a year.
    "hydra/launcher=submitit_local": (
        "hydra_plugins.hydra_submitit_launcher",
        ["hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=525600"],
    ),
    # It maximises returns. With a seed, the same command chooses the same trials. Failed runs do not end the search.
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
"""For choices of Hydra's groups: the module of the plugin, and defaults that the command line can override."""

SUBMITTED_AT_A_TIME = 8
"""Number of jobs to submit at a time to submitit's local launcher, per job that can run. Each waiting job has a
process, and a thousand of these would fill the memory."""


def with_defaults(own: Sequence[str]) -> list[str]:
    """Hydra's own overrides, preceded by the defaults of the plugins that they choose.

    Raises `ConfigError` if a plugin is not installed.
    """
    words = list(own)
    for choice in PLUGINS.keys() & set(own):
        module, defaults = PLUGINS[choice]
        require(module, "sweeps", choice)
        words = [*defaults, *words]
    return words


def launch(own: Sequence[str], jobs: Sequence[list[str]], job: SweepJob) -> None:
    """Run `jobs`, lists of overrides, by Hydra's launcher; it calls `job`. Exceptions of the launcher are passed on."""
    job.total = len(jobs)
    sweep_dir = (
        "hydra.output_subdir=null",
        f"hydra.sweep.dir={quoted(str(job.journal.parent))}",
    )  # `outputs`, which may begin with ~
    with _composed([*sweep_dir, *own, *jobs[0]]) as (config, context):
        at_once = _share_cpus(config.hydra.launcher, job, len(jobs))
        launcher = Plugins.instance().instantiate_launcher(context, job, config)
        local = config.hydra.launcher._target_.endswith("LocalLauncher")
        size = SUBMITTED_AT_A_TIME * at_once if local else len(jobs)
        for start in range(0, len(jobs), size):
            launcher.launch(jobs[start : start + size], start)


def require_one_task(own: Sequence[str]) -> None:
    """Raise `ConfigError` if a job would be started as several tasks, of which each would train the same run."""
    with _composed(own) as (config, _):
        launcher = config.hydra.launcher
    for key in ("nodes", "tasks_per_node"):
        if launcher.get(key, 1) != 1:
            raise ConfigError(
                f"hydra.launcher.{key}={launcher[key]}: use 1; python launch/slurm.py launch.nodes=... trains on "
                "several nodes"
            )


def search(own: Sequence[str], words: Sequence[str], job: SweepJob) -> None:
    """Let Hydra's sweeper choose jobs from `words` and launch them; it calls `job`. Exceptions of it are passed on."""
    with _composed(readable(["hydra.output_subdir=null", *own, *words])) as (config, context):
        _share_cpus(config.hydra.launcher, job, config.hydra.sweeper.get("n_jobs", 1))
        if config.hydra.sweeper._target_.endswith("OptunaSweeper"):
            import optuna

            optuna.logging.set_verbosity(logging.WARNING)
        if not any(word.lstrip("+").startswith("hydra.sweep.dir=") for word in own):
            config.hydra.sweep.dir = str(job.journal.with_suffix(""))  # a folder of this search, for the best values
        Path(config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        sweeper = Plugins.instance().instantiate_sweeper(hydra_context=context, task_function=job, config=config)
        sweeper.sweep(list(config.hydra.overrides.task))
        for file in Path(config.hydra.sweep.dir).glob("optimization_results.*"):
            say(f"the best values are in {file}")


@contextmanager
def _composed(words: Sequence[str]) -> Iterator[tuple[DictConfig, HydraContext]]:
    """The configuration and the context from which Hydra makes its plugins."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", list(words), RunMode.MULTIRUN)
        yield config, HydraContext(config_loader=loader, callbacks=Callbacks())


def _share_cpus(launcher: DictConfig, job: SweepJob, jobs: int) -> int:
    """Divide this machine's CPUs among the jobs that run at the same time, and return the number of these jobs."""
    cpus = cores_of_process()
    if launcher._target_.endswith("JoblibLauncher"):
        asked = launcher.n_jobs if launcher.n_jobs > 0 else len(cpus)
    elif launcher._target_.endswith("LocalLauncher"):
        asked = len(cpus) // (launcher.cpus_per_task or 1)
    else:
        return 1
    at_once = max(1, min(asked, len(cpus), jobs))
    if "n_jobs" in launcher:
        launcher.n_jobs = at_once
    job.shares = [part_of_cores(index, at_once) for index in range(at_once)]
    if at_once > 1:
        each = "1 CPU" if len(job.shares[0]) == 1 else f"{len(job.shares[0])} CPUs"
        say(
            f"warning: {at_once} runs at a time, {each} each: their speeds cannot be compared with those of a run alone"
        )
    return at_once
