"""From command-line overrides to a checked configuration, or to a one-line error that says what to change.

YAML files under conf/ hold every value and its explanation; schemas hold the types. The choices of the groups
`framework`, `backend`, `network`, `algorithm` and `tracker` name their class by `_target_`, and are instantiated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.classes import class_named
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.choices import BUILDS, choice
from ppo_bench.configuration.compose import compose_root, config_error, to_schema
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.identity import trained
from ppo_bench.configuration.ranges import check_values
from ppo_bench.configuration.schema import schema_of
from ppo_bench.envs.base import Atari
from ppo_bench.tuning.switches import Tuning

GROUPS = tuple(group for group in BUILDS if group != "tracker")
"""Groups of one choice each, which is instantiated."""
RETIRED = ("opponents", "rating")
"""Root keys of older runs that say nothing of how their policies act."""


def load_config(overrides: Sequence[str], name: str = "config") -> Config:
    """Compose `conf/<name>.yaml` with `overrides` and check it. Raises `ConfigError` with one line.

    Callers check whether framework and backend can run it: `config.require()`.
    """
    return checked(compose_root(name, overrides), overrides)


def recorded_config(recorded: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The configuration in a run.json, with `changes` in place of its root keys or groups.

    Keys that are newer than the run have their defaults. Raises `ConfigError`.
    """
    if (recorded.get("opponents") or {}).get("pool_size"):
        raise ConfigError("it was trained against opponents from its past, which this version lacks")
    own = {key: value for key, value in {**recorded, **changes}.items() if key not in RETIRED} | {"tracker": {}}
    own |= _by_todays_names(own)
    composed = compose_root("config", [])
    OmegaConf.set_struct(composed, False)
    try:
        for group in BUILDS:
            if group in own:
                composed[group] = {}
        composed.env.ids = composed.env.kwargs = {}
        merged: Any = OmegaConf.merge(composed, own)
        return checked(merged)
    except OmegaConfBaseException as error:
        raise config_error(error) from error


def _by_todays_names(own: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a recorded configuration that had other names: the backend device was called jax."""
    env, backend = own.get("env") or {}, own.get("backend") or {}
    ids = {"device" if name == "jax" else name: env_id for name, env_id in (env.get("ids") or {}).items()}
    renamed = {"_target_": "ppo_bench.envs.device.DeviceBackend", "name": "device"}
    return {"env": {**env, "ids": ids}} | ({"backend": renamed} if backend.get("name") == "jax" else {})


def checked(composed: DictConfig, overrides: Sequence[str] = ()) -> Config:
    """The checked configuration of composed YAML files. Raises `ConfigError` with one line.

    `overrides` are the words that composed it; none if it is that of a recorded run.
    """
    try:
        config = _instantiated(_with_schemas(composed), tuple(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise config_error(error) from error
    check_values(config)
    if overrides and any(part.startswith(".") for part in Path(config.root.name).parts):
        raise ConfigError(f"name={config.root.name}: no command would find runs in a hidden folder")
    config.task  # noqa: B018 (raises if the backend has no such environment)
    return config


def _with_schemas(composed: DictConfig) -> DictConfig:
    """`composed` with a schema for each choice whose file has none, the dataclass that it names, and for `env.atari`.

    Their nodes have none before, so that `key={...}` on the command line can replace null.
    """
    typed = deepcopy(composed)
    for key in (*GROUPS, "ppo", "tuning"):
        node = typed.get(key)
        if OmegaConf.get_type(node) is dict and (schema := _schema(key, node)) is not None:
            typed[key] = schema
            typed[key].merge_with(node)
    if (atari := typed.env.atari) is not None:
        if not isinstance(atari, DictConfig):
            raise ConfigError(f"env.atari={atari}: it has keys with values, as in conf/env/atari.yaml")
        typed.env.atari = OmegaConf.structured(Atari)
        typed.env.atari.merge_with(atari)
    return typed


def _schema(key: str, node: DictConfig) -> DictConfig | None:
    """The schema of a choice of `key`; None if it names no dataclass of types that OmegaConf knows."""
    try:
        cls = {"ppo": Hyperparameters, "tuning": Tuning}.get(key) or class_named(key, node.get("_target_"))
        return schema_of(cls) if is_dataclass(cls) else None
    except (ConfigError, OmegaConfBaseException, NameError):  # of what cannot be imported, `choice` tells
        return None


def _instantiated(composed: DictConfig, overrides: tuple[str, ...]) -> Config:
    root = to_schema(composed, BUILDS)
    resolved: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    choices = {group: choice(group, composed[group]) for group in GROUPS}
    trackers = {key: choice("tracker", node, f"tracker.{key}") for key, node in composed.tracker.items()}
    root.outputs = os.path.expanduser(root.outputs)
    if root.checkpoint.load is not None:
        root.checkpoint.load = os.path.expanduser(root.checkpoint.load)
    resolved |= {"outputs": root.outputs, "checkpoint": resolved["checkpoint"] | {"load": root.checkpoint.load}}
    return Config(
        root=root,
        ppo=root.ppo,
        tuning=root.tuning,
        trackers=trackers,
        resolved=resolved,
        trained=trained(composed),
        overrides=overrides,
        **choices,
    )
