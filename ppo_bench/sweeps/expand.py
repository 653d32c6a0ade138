"""Expansion of a sweep's overrides, in which a key may have several values, to the overrides of its jobs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.compose import compose_root, config_error, is_a_sweep, key_of, of_hydra, search_path


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: the product over all lists (`a,b`), ranges and globs in `overrides`."""
    return [list(job) for job in itertools.product(*_alternatives(overrides))]


def corner(overrides: Sequence[str]) -> list[str]:
    """The overrides of one job that a sweeper may choose: the first value of each list, the start of each interval."""
    return [values[0] for values in _alternatives(overrides, starts=True)]


def sweep_jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job, including those from the experiment's own sweep (`hydra.sweeper.params`)."""
    return [whole for job in expand(overrides) for whole in expand([*own_sweep(job), *job])]


def own_sweep(overrides: Sequence[str]) -> list[str]:
    """Overrides with several values from the experiment's own sweep, for the keys that `overrides` do not set."""
    given = {key_of(word) for word in overrides}
    experiments = [word for word in overrides if word.startswith("experiment=")]
    swept = _values_swept((*search_path(overrides), *experiments)) if experiments else ()
    return [f"{key}={values}" for key, values in swept if key not in given]


def require_one_run(overrides: Sequence[str]) -> None:
    """Raise `ConfigError` if the overrides are those of a sweep: Hydra's own, or an experiment that is one."""
    for word in of_hydra(overrides):
        if not search_path([word]):
            raise ConfigError(
                f"{word}: Hydra's own keys are for the command line; the folder of a run follows from outputs=..."
            )
    if swept := [key_of(word) for word in own_sweep(overrides)]:
        raise is_a_sweep(swept)


@cache
def _values_swept(chosen: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The keys and values of the sweep that an experiment is; `chosen` names it and the search path of its file."""
    params = compose_root("config", chosen, with_hydra=True).hydra.sweeper.params
    return tuple((str(key), str(values)) for key, values in (params or {}).items())


def _alternatives(overrides: Sequence[str], *, starts: bool = False) -> list[list[str]]:
    """The override of each of its values, for each of `overrides`; of an interval that of its start, if `starts`.

    Raises `ConfigError` if one has no values, or is an interval otherwise.
    """
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()  # globs are expanded by it
            parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
            return [_each_value(each, starts) for each in parsed]
    except HydraException as error:
        raise config_error(error, overrides) from error


def _each_value(override: Override, starts: bool) -> list[str]:
    if not override.is_sweep_override():
        return [override.input_line or ""]
    interval: Any = override.value()
    of_start = starts and override.is_interval_sweep()
    values = [interval.start] if of_start else list(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"{override.input_line}: there is no such value to sweep over")
    return [f"{override.get_key_element()}={value}" for value in values]
