"""The programs of a benchmark: the configurations that its overrides describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.common.progress import print_status
from ppo_bench.common.values import AT_LEAST_1
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.sweeps.expand import expand

CHOICES = {"framework", "backend"}
"""Groups of which all choices are measured unless the user chooses."""


@dataclass
class BenchSchema(RootSchema):
    """The keys of conf/bench.yaml; it explains them."""

    rounds: int = field(metadata=AT_LEAST_1)
    iterations: int = field(metadata=AT_LEAST_1)
    trace: bool


ConfigStore.instance().store("BenchSchema", BenchSchema)


def schema(config: Config) -> BenchSchema:
    """The root of a benchmark's configuration."""
    assert isinstance(config.root, BenchSchema)
    return config.root


def load(job: list[str]) -> Config:
    """The configuration of one program. Raises `ConfigError`."""
    if any(word.startswith("total_timesteps=") for word in job):
        raise ConfigError("total_timesteps: a bench ends after its rounds and iterations; leave it out")
    config = load_config(job, "bench")
    root = schema(config)
    if config.ppo.target_kl is not None:
        raise ConfigError(f"ppo.target_kl={config.ppo.target_kl}: a bench measures all epochs; use ppo.target_kl=null")
    if config.root.checkpoint.load:
        raise ConfigError("checkpoint.load: a bench measures a training from its beginning; leave it out")
    if root.grid:
        raise ConfigError("grid: a bench measures one set of hyperparameters; leave it out")
    if root.num_seeds > 1:
        raise ConfigError(f"num_seeds={root.num_seeds}: a bench measures one training; leave it out")
    return config


def runnable(overrides: list[str]) -> list[tuple[list[str], Config]]:
    """Overrides and configuration of every program; groups in `CHOICES` that the user did not choose take all choices.

    Impossible combinations, and programs whose packages are missing, are left out. Raises `ConfigError` if no program
    is left, or if the left-out one is all that the user asked for.
    """
    chosen = {word.partition("=")[0] for word in overrides}
    jobs, found = expand(overrides), []
    for job in jobs:
        for backend in [[]] if "backend" in chosen else _backends(job):
            for framework in [[]] if "framework" in chosen else [[f"framework={name}"] for name in FRAMEWORKS]:
                words = [*job, *backend, *framework]
                config = load(words)
                if not config.steps_envs and not chosen >= CHOICES:
                    continue
                try:
                    config.require()
                except ConfigError as reason:
                    if chosen >= CHOICES and len(jobs) == 1:  # it is all that was asked for
                        raise
                    print_status(f"left out: {reason}")
                    continue
                found.append((words, config))
    if not found:
        load(expand(overrides)[0]).require()  # raises the reason, if there is one
        raise ConfigError("no framework can step these environments here; the reasons are above")
    return found


def _backends(job: list[str]) -> list[list[str]]:
    """The overrides for each backend that offers a job's environment."""
    env = load(job).root.env
    return [[]] if env.id else [[f"backend={name}"] for name in env.ids]


def labels(jobs: Sequence[Sequence[str]]) -> list[str]:
    """A label for each program, which tells programs of equal framework and backend apart: the overrides that not all
    programs share."""
    shared = set.intersection(*map(set, jobs))
    return [
        " ".join(word for word in job if word not in shared and word.partition("=")[0] not in CHOICES) for job in jobs
    ]
