"""Checks of all jobs of a sweep before the first one trains."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import are_complete
from ppo_bench.configuration.compose import config_loader, without_hydra
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import composed_config
from ppo_bench.envs.observation_selection import make_env
from ppo_bench.sweeps.expand import expand, swept_words


def check_jobs(multirun: DictConfig) -> None:
    """Raise `ConfigError` for the first wrong job of a multirun; of a search, for that of its first values.

    `multirun` is the configuration that Hydra has composed for it.
    """
    hydra, configs = multirun.hydra, []
    words: Any = OmegaConf.to_container(hydra.overrides.task)  # interpolations are those of each job
    searching = not hydra.sweeper._target_.endswith(".BasicSweeper")
    with config_loader() as loader:
        for job in expand(swept_words(hydra, words), first=searching):
            composed = loader.load_sweep_config(multirun, job)
            configs.append(composed_config(without_hydra(composed), composed.hydra))
    for config in configs:
        config.require()
        if searching and config.grid:
            raise ConfigError("grid: a search judges one set of hyperparameters at a time; leave it out")
    check_environments(config for config in configs if not are_complete(config.folders))


def _require_module(env_id: str) -> None:
    """Raise `ConfigError` unless Python finds the package of `package.module:name`.

    Nothing is imported, since that can start a simulator.
    """
    module, _, name = env_id.partition(":")
    if not name or importlib.util.find_spec(module.partition(".")[0]) is None:
        raise ConfigError(f"env.id={env_id}: Python finds no such module; the form is module:name")


def check_environments(configs: Iterable[Config]) -> None:
    """Raise `ConfigError` if an environment cannot be made.

    Environments on the device are checked by their runs, as GPUs are; only the module of one's own is looked for.
    """
    seen, before = set(), dict(os.environ)
    try:
        for config in configs:
            task = config.task.with_one_env()
            what = repr((config.backend, task))
            if what in seen:
                continue
            seen.add(what)
            if config.backend.in_graph:
                if config.backend.name == "tensors" or ":" in task.id:
                    _require_module(task.id)
            else:
                env = make_env(config.backend, task)
                env.close()
                config.training_spec(env)
    finally:  # physics and graphics libraries may have set environment variables, which the runs must not inherit
        os.environ.clear()
        os.environ.update(before)
