"""From overrides, or from what Hydra has composed, to a checked configuration, or to one line that says what to change.

YAML files under conf/ hold every value and its explanation; schemas hold the types. The choices of the groups
`framework`, `backend`, `network`, `algorithm` and `tracker` name their class by `_target_`, and are instantiated.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import jsonable, read_json
from ppo_bench.common.values import quote
from ppo_bench.configuration.checks import check_values
from ppo_bench.configuration.compose import (
    compose_root,
    compose_with_hydra,
    config_error,
    key_of,
    without_hydra,
)
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.identity import hashed
from ppo_bench.configuration.schema import MEMBERS, RootSchema, schemas_of


def load_config(overrides: Sequence[str], name: str = "config") -> Config:
    """Compose `conf/<name>.yaml` with `overrides` and check it. Raises `ConfigError` with one line.

    Callers check whether framework and backend can run it: `config.require()`.
    """
    composed = compose_with_hydra(name, overrides)
    return composed_config(without_hydra(composed), composed.hydra)


def composed_config(job: DictConfig, hydra: Any) -> Config:
    """The checked configuration of a job that Hydra has composed; `hydra` is its own node.

    Raises `ConfigError` with one line, also if the job is an experiment whose file sweeps over keys that have no value.
    """
    overrides: Any = OmegaConf.to_container(hydra.overrides.task)  # without their interpolations
    given = {key_of(word) for word in overrides}
    if swept := [key for key in map(key_of, hydra.sweeper.get("params") or ()) if key not in given]:
        keys = ", ".join(swept)
        raise ConfigError(f"this experiment is a sweep over {keys}: run it by -m, or give them one value each")
    folder = source_path(hydra, "command-line")
    paths = [*([f"file://{folder}"] if folder else []), *hydra.searchpath]
    found = [f"hydra.searchpath=[{','.join(map(quote, paths))}]"] if paths else []
    cls: Any = OmegaConf.get_type(job)
    config = _checked(values_of(job), cls, (*found, *overrides))
    if hydra.job.chdir:  # relative paths are those of the folder that the command was given in
        config.root.outputs = str(Path(hydra.runtime.cwd, config.root.outputs))
        if config.root.checkpoint.load:
            config.root.checkpoint.load = str(Path(hydra.runtime.cwd, config.root.checkpoint.load))
    return config


def run_dir(*, _root_: DictConfig) -> str:
    """The folder of the run that the whole configuration `_root_` asks for. Raises `ConfigError` if it is wrong.

    Hydra calls it before it makes the folder, so that nothing is left of a wrong command.
    """
    if set(_root_) == {"hydra"}:  # --cfg hydra --resolve
        return "<the run's folder>"
    config = composed_config(without_hydra(_root_), _root_.hydra)
    config.require()
    return str(config.folders[0])


OmegaConf.register_new_resolver("run_dir", run_dir, replace=True)


def job_config(job: DictConfig) -> Config:
    """The checked configuration of the job that Hydra runs now. Raises `ConfigError`."""
    hydra: Any = HydraConfig.get()
    config = composed_config(job, hydra)
    config.require()
    folder = hydra.runtime.output_dir
    if hydra.mode == RunMode.MULTIRUN or folder == os.path.abspath(config.folders[0]):
        return config
    if config.trains_several:
        raise ConfigError(f"hydra.run.dir={folder}: num_seeds and grid train several runs; leave it out")
    if config.root.rerun:
        raise ConfigError(f"hydra.run.dir={folder}: rerun=true chooses a new folder itself; leave out one of the two")
    run = Path(folder)
    if (run / "run.json").exists():
        there = read_json(run / "run.json")
        recorded: Any = there.get("config")
        seed = recorded.get("seed") if isinstance(recorded, dict) else None
        if (there.get("identity"), seed) != (jsonable(config.identity), config.root.seed):
            raise ConfigError(f"hydra.run.dir={folder}: another run is there; choose another folder")
    return replace(config, run_dir=run)


def source_path(hydra: Any, provider: str) -> str | None:
    """The absolute path of a source of YAML files; None if Hydra has none.

    `provider` is "command-line" for `--config-dir`, and "main" for `--config-path` or conf/.
    """
    return next((one.path for one in hydra.runtime.config_sources if one.provider == provider), None)


def recorded_config(recorded: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The configuration in a run.json, with `changes` in place of its root keys or groups.

    Keys that are newer than the run have their defaults. Raises `ConfigError`.
    """
    values = dict(_defaults())
    for key, value in {**recorded, **changes, "tracker": {}}.items():
        has_newer_keys = isinstance(value, Mapping) and key not in MEMBERS
        values[key] = {**(values.get(key) or {}), **value} if has_newer_keys else value
    values["framework"] = {name: x for name, x in values["framework"].items() if name != "iterations_per_call"}  # gone
    return _checked(values, RootSchema)


@functools.cache
def _defaults() -> dict[str, Any]:
    """The values of conf/config.yaml without overrides."""
    return values_of(compose_root("config", []))


def values_of(composed: DictConfig) -> dict[str, Any]:
    """The values of a composed configuration as plain types. Raises `ConfigError` if one is missing."""
    try:
        values: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        return values
    except OmegaConfBaseException as error:
        raise config_error(error) from error


def to_schema(values: Mapping[str, Any], cls: type) -> Any:
    """An instance of the dataclass `cls`. Raises `ConfigError` if a key is not in it, or has another type."""
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(cls), values))
    except OmegaConfBaseException as error:
        raise config_error(error) from error


def _checked(values: Mapping[str, Any], cls: type, overrides: tuple[str, ...] = ()) -> Config:
    """The checked configuration with these values of the keys of `cls`; `overrides` are the words that gave them."""
    try:
        typed: Any = OmegaConf.merge(OmegaConf.structured(cls), schemas_of(values), values)
        typed.outputs = os.path.expanduser(typed.outputs)
        typed.checkpoint.load = typed.checkpoint.load and os.path.expanduser(typed.checkpoint.load)
        trackers = {name: _choice(f"tracker.{name}", node) for name, node in typed.tracker.items()}
        made = {key: _choice(key, typed[key]) for key in MEMBERS if key != "tracker"}
        resolved: Any = OmegaConf.to_container(typed)
        parts = {"resolved": resolved, "hashed": hashed(typed), "overrides": overrides}
        for key in MEMBERS:  # these are `made`
            typed[key] = {} if key == "tracker" else None
        root: Any = OmegaConf.to_object(typed)
    except (HydraException, OmegaConfBaseException) as error:
        raise config_error(error) from error
    config = Config(root, root.ppo, tuning=root.tuning, trackers=trackers, **made, **parts)
    check_values(config)
    config.task  # noqa: B018 (raises if the backend has no such environment)
    return config


def _choice(key: str, node: Any) -> Any:
    """The instance of the choice at a key, such as `network` or `tracker.wandb`. Raises `ConfigError`."""
    group = key.partition(".")[0]
    made: Any = instantiate(node, _convert_="object") if isinstance(node, DictConfig) else None
    if made is None and group == "tracker":
        raise ConfigError(f"{key}={node}: a file of the group tracker begins with the line # @package tracker.<name>")
    for member in (*MEMBERS[group], *(["libraries"] if getattr(made, "in_graph", False) else [])):
        if not hasattr(made, member):
            raise ConfigError(
                f"{key}={node} is not a choice of the group {group}: it has no `{member}`; see docs/own.md"
            )
    return made
