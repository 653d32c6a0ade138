"""Jobs of a multirun: overrides with several values for a key, expanded as Hydra's `BasicSweeper` does, and checked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from contextlib import chdir
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import are_complete
from ppo_bench.configuration.compose import compose_with_hydra, config_loader, key_of, search_path, without_hydra
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import composed_config
from ppo_bench.envs.make import make_env


def expand(overrides: Sequence[str], first: bool = False) -> list[list[str]]:
    """The overrides of each job: the product of all lists (`a,b`), ranges and globs; a later word of a key counts.

    `first` gives one job alone, that of each key's first value, or of the start of its interval.
    """
    with config_loader() as loader:  # which expands globs
        parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
        by_key = {each.get_key_element(): _values(each, first) for each in parsed}
        return [list(job) for job in itertools.product(*by_key.values())]


def sweep_jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a multirun, as `-m` has them."""
    chosen = [word for word in overrides if key_of(word) == "experiment" and len(expand([word])) == 1]
    return expand(swept_words(compose_with_hydra("config", [*search_path(overrides), *chosen]).hydra, overrides))


def swept_words(hydra: Any, overrides: Sequence[str]) -> list[str]:
    """The overrides of a multirun, after those of the experiment's own sweep (`hydra.sweeper.params`)."""
    return [*(f"{key}={values}" for key, values in (hydra.sweeper.get("params") or {}).items()), *overrides]


def _values(override: Override, first: bool) -> list[str]:
    """The override of each of its values. Raises `ConfigError` if there are none."""
    if not override.is_sweep_override():
        return [override.input_line or ""]
    interval: Any = override.value()
    of_start = first and override.is_interval_sweep()
    values = [interval.start] if of_start else list(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"{override.input_line}: there is no such value to sweep over")
    return [f"{override.get_key_element()}={value}" for value in (values[:1] if first else values)]


def check_jobs(multirun: DictConfig) -> None:
    """Raise `ConfigError` for the first wrong job of a multirun; of a search, for that of its first values.

    `multirun` is the configuration that Hydra has composed for it.
    """
    hydra, configs = multirun.hydra, []
    if (size := hydra.sweeper.get("max_batch_size")) is not None and size < 1:
        raise ConfigError(f"hydra.sweeper.max_batch_size={size}: must be at least 1")
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


def check_environments(configs: Iterable[Config]) -> None:
    """Raise `ConfigError` if an environment cannot be made. Those on the device are checked by their runs."""
    before = dict(os.environ)
    different = {
        repr((each.backend, each.task.with_num_envs(1))): each for each in configs if not each.backend.in_graph
    }
    try:
        for config in different.values():
            with chdir("."):  # an environment may change the current folder
                env = make_env(config.backend, config.task.with_num_envs(1))
                env.close()
                config.training_spec(env)
    finally:  # physics and graphics libraries may have set environment variables, which the runs must not inherit
        os.environ.clear()
        os.environ.update(before)
