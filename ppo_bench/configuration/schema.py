"""Types of the configuration's keys. Their values and explanations are in conf/.

Hydra's ConfigStore has the schemas of all keys but those of choices, and files name them first in their `defaults`. A
choice names its class by `_target_`, whose fields are its keys. A field's metadata says whether it is part of a run's
identity; see `ppo_bench.common.values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.classes import class_named
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import NOT_TRAINED, younger
from ppo_bench.envs.base import Atari
from ppo_bench.networks.own import Own
from ppo_bench.tuning.switches import Tuning

METHODS = {"framework": "runner", "backend": "make", "network": "build", "algorithm": "loss", "tracker": "open"}
"""Method that each choice of a group has to have, by group."""


@dataclass
class EnvSchema:
    """`env`; see conf/env/cartpole.yaml. An identity has the id that its backend takes in place of these names."""

    name: str = field(metadata=NOT_TRAINED)
    ids: dict[str, str] = field(metadata=NOT_TRAINED)
    id: str | None = field(metadata=NOT_TRAINED)
    atari: Any
    kwargs: dict[str, Any] | None
    wrappers: list[Any]
    info: list[str] = field(metadata=NOT_TRAINED)
    game: str | None = field(default=None, metadata=NOT_TRAINED)
    mode: str | None = field(default=None, metadata=NOT_TRAINED)
    rescale_actions: bool = younger(False)
    observe: list[int] = younger([])  # noqa: RUF009 (a field of its own)
    players: int = younger(1)


@dataclass
class CheckpointSchema:
    """`checkpoint`; see conf/config.yaml. An identity has a digest of the checkpoint that `load` names."""

    every_iterations: int
    keep: int = field(metadata=NOT_TRAINED)
    load: str | None = field(metadata=NOT_TRAINED)
    fine_tune: bool = field(default=False, metadata=NOT_TRAINED)


@dataclass
class VideoSchema:
    """`video`; see conf/config.yaml."""

    every_episodes: int


@dataclass
class EvaluationSchema:
    """`evaluation`; see conf/config.yaml."""

    every_iterations: int
    episodes: int


@dataclass
class RootSchema:
    """The keys of conf/config.yaml; the choices of groups have schemas of their own."""

    name: str = field(metadata=NOT_TRAINED)
    seed: int = field(metadata=NOT_TRAINED)
    num_seeds: int = field(metadata=NOT_TRAINED)
    grid: dict[str, Any] | None = field(metadata=NOT_TRAINED)
    total_timesteps: int
    precision: str
    device: str
    devices: int = field(metadata=NOT_TRAINED)
    collective_timeout_seconds: float = field(metadata=NOT_TRAINED)
    rerun: bool = field(metadata=NOT_TRAINED)
    outputs: str = field(metadata=NOT_TRAINED)
    checkpoint: CheckpointSchema
    video: VideoSchema = field(metadata=NOT_TRAINED)
    evaluation: EvaluationSchema = field(metadata=NOT_TRAINED)
    env: EnvSchema
    ppo: Any
    framework: Any
    backend: Any
    network: Any
    algorithm: Any
    tuning: Any
    tracker: dict[str, Any] = field(metadata=NOT_TRAINED)


def schemas_of(values: Mapping[str, Any]) -> DictConfig:
    """The types of plain `values` that RootSchema leaves open, at the same keys: those of each choice, and `env.atari`.

    A choice whose class is no dataclass of types that OmegaConf knows has none.
    """
    schemas = OmegaConf.create({"ppo": with_free_keys(Hyperparameters), "tuning": with_free_keys(Tuning)})
    if (atari := values["env"]["atari"]) is not None:
        if not isinstance(atari, Mapping):
            raise ConfigError(f"env.atari={atari}: it has keys with values, as in conf/env/atari.yaml")
        OmegaConf.update(schemas, "env.atari", OmegaConf.structured(Atari))
    for key, node in choices_in(values).items():
        cls = class_named(f"{key}._target_", node.get("_target_")) if isinstance(node, Mapping) else None
        if isinstance(cls, type) and is_dataclass(cls):
            with suppress(OmegaConfBaseException, NameError):
                OmegaConf.update(schemas, key, choice_schema(cls))
    return schemas


def choice_schema(cls: type, *free: str) -> DictConfig:
    """The schema of a choice of the dataclass `cls`: its fields, and `_target_`; see `with_free_keys`."""
    schema = with_free_keys(cls, *free)
    with open_dict(schema):
        schema["_target_"] = "???"
    return schema


def choices_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """The choices in plain `values` that name their class, by key: one of each group, and each tracker."""
    trackers = {f"tracker.{name}": node for name, node in (values["tracker"] or {}).items()}
    return {group: values[group] for group in METHODS if group != "tracker"} | trackers


def with_free_keys(cls: type, *paths: str) -> DictConfig:
    """The schema of the dataclass `cls`, whose dictionaries at these paths have the keys that a user chooses."""
    schema: Any = OmegaConf.structured(cls)
    OmegaConf.set_readonly(schema, None)  # frozen classes start read-only
    schema = OmegaConf.merge(schema, OmegaConf.from_dotlist([f"{path}={{}}" for path in paths]))
    for path in paths:
        OmegaConf.set_struct(OmegaConf.select(schema, path), False)
    return schema


store = ConfigStore.instance()
store.store("RootSchema", with_free_keys(RootSchema, "grid", "env.kwargs"))
store.store("Hyperparameters", with_free_keys(Hyperparameters))
store.store("Tuning", with_free_keys(Tuning))
store.store("Own", choice_schema(Own, "names"))
