"""Types of the configuration's keys. Their values and explanations are in conf/.

Hydra's ConfigStore has the schemas, and files name them first in their `defaults`. That of a choice has the fields of
the class that it names by `_target_`; a file of the user's needs no other. A field's metadata says its range, and
whether it is part of a run's identity; see `ppo_bench.common.values`.
"""

from __future__ import annotations

import math
import pydoc
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import AT_LEAST_1, NOT_HASHED, NOT_NEGATIVE, added_field, within
from ppo_bench.envs.base import Atari
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.own import Own
from ppo_bench.tuning.switches import Tuning

CHOICES = (
    *(f"ppo_bench.runners.frameworks.{name}" for name in ("Torch", "TorchCompile", "Jax")),
    *("ppo_bench.envs.gymnasium.GymnasiumBackend", "ppo_bench.envs.envpool.EnvPoolBackend"),
    "ppo_bench.envs.pettingzoo.PettingZooBackend",
    *("ppo_bench.envs.device.DeviceBackend", "ppo_bench.envs.tensors.TensorsBackend"),
    *(f"ppo_bench.networks.spec.{name}" for name in ("Mlp", "Combined", "RecurrentMlp", "RecurrentCnn")),
    *(f"ppo_bench.networks.spec.{name}" for name in ("NatureCnn", "ImpalaCnn", "MinAtarCnn", "RndCnn")),
    *("ppo_bench.networks.own.Own", "ppo_bench.networks.transformer.Trxl"),
    *("ppo_bench.algorithms.ppo.Ppo", "ppo_bench.algorithms.rnd.Rnd"),
    *("ppo_bench.runs.trackers.tensorboard.Tensorboard", "ppo_bench.runs.trackers.wandb.Wandb"),
)
"""Classes of the choices of groups, whose schemas are in the ConfigStore."""
MEMBERS = {
    "framework": ("process_per_device", "runner", "policy"),
    "backend": ("name", "in_graph", "vmappable", "make"),
    "network": ("build",),
    "algorithm": ("streams", "targets", "loss", "after_update"),
    "tracker": ("open",),
}
"""Attributes and methods that each choice of a group has to have, by group."""


def _is_inside(name: str) -> bool:
    path = Path(name)
    return name.strip() != "" and not path.is_absolute() and not any(part.startswith(".") for part in path.parts)


def _can_be_recorded(value: Any) -> bool:
    """Whether JSON keeps `value`: the keys of every mapping are strings, and numbers are finite."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value) and all(map(_can_be_recorded, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_can_be_recorded, value))
    return not isinstance(value, float) or math.isfinite(value)


SEED = within(lambda value: 0 <= value < 2**31, f"must lie between 0 and {2**31 - 1}")
PRECISION = within(lambda value: value in PRECISIONS, f"choose one of {', '.join(PRECISIONS)}")
DEVICE = within(lambda value: re.fullmatch(r"auto|cpu|cuda(:\d+)?", value), "choose auto, cpu, cuda or cuda:<i>")
TIMEOUT = within(lambda value: 0 < value <= 10**6, "must be above 0 and at most 1_000_000")
NOT_EMPTY = within(lambda value: value.strip() != "", "must not be empty")
FOLDER = within(lambda value: value.strip() != "", "must name a folder")
INSIDE = within(_is_inside, "must be a relative path without '..' or hidden folders, where no command finds runs")
RECORDABLE = within(_can_be_recorded, "run.json records it: keys of a mapping must be names, and numbers finite")


@dataclass
class EnvSchema:
    """`env`; see conf/env/cartpole.yaml. An identity has the id that its backend takes in place of these names."""

    name: str = field(metadata=NOT_HASHED)
    ids: dict[str, str] = field(metadata=NOT_HASHED)
    id: str | None = field(metadata=NOT_HASHED | NOT_EMPTY)
    atari: Any
    kwargs: dict[str, Any] | None = field(metadata=RECORDABLE)
    wrappers: list[Any] = field(metadata=RECORDABLE)
    info: list[str] = field(metadata=NOT_HASHED)
    game: str | None = field(default=None, metadata=NOT_HASHED | NOT_EMPTY)
    mode: str | None = field(default=None, metadata=NOT_HASHED)
    rescale_actions: bool = added_field(False)
    observe: list[int] = added_field([])  # noqa: RUF009 (a field of its own)
    players: int = added_field(1, AT_LEAST_1)


@dataclass
class CheckpointSchema:
    """`checkpoint`; see conf/config.yaml. An identity has a digest of the checkpoint that `load` names."""

    every_iterations: int = field(metadata=AT_LEAST_1)
    keep: int = field(metadata=NOT_HASHED | AT_LEAST_1)
    load: str | None = field(metadata=NOT_HASHED)
    fine_tune: bool = field(default=False, metadata=NOT_HASHED)


@dataclass
class VideoSchema:
    """`video`; see conf/config.yaml."""

    every_episodes: int = field(metadata=NOT_NEGATIVE)


@dataclass
class EvaluationSchema:
    """`evaluation`; see conf/config.yaml."""

    every_iterations: int = field(metadata=NOT_NEGATIVE)
    episodes: int = field(metadata=AT_LEAST_1)


@dataclass
class RootSchema:
    """The keys of conf/config.yaml; the choices of groups have schemas of their own."""

    name: str = field(metadata=NOT_HASHED | INSIDE)
    seed: int = field(metadata=NOT_HASHED | SEED)
    num_seeds: int = field(metadata=NOT_HASHED | AT_LEAST_1)
    grid: dict[str, Any] | None = field(metadata=NOT_HASHED)
    total_timesteps: int
    precision: str = field(metadata=PRECISION)
    device: str = field(metadata=DEVICE)
    devices: int = field(metadata=NOT_HASHED | AT_LEAST_1)
    collective_timeout_seconds: float = field(metadata=NOT_HASHED | TIMEOUT)
    rerun: bool = field(metadata=NOT_HASHED)
    outputs: str = field(metadata=NOT_HASHED | FOLDER)
    checkpoint: CheckpointSchema
    video: VideoSchema = field(metadata=NOT_HASHED)
    evaluation: EvaluationSchema = field(metadata=NOT_HASHED)
    env: EnvSchema
    ppo: Any
    framework: Any
    backend: Any
    network: Any
    algorithm: Any
    tuning: Any
    tracker: dict[str, Any] = field(metadata=NOT_HASHED)


def schemas_of(values: Mapping[str, Any]) -> DictConfig:
    """The types of plain `values` that RootSchema leaves open, at the same keys: those of each choice, and `env.atari`.

    Only dataclasses with types that OmegaConf knows have a schema; functions and other classes have none.
    """
    schemas = OmegaConf.create({"ppo": with_free_keys(Hyperparameters), "tuning": with_free_keys(Tuning)})
    if (atari := values["env"]["atari"]) is not None:
        if not isinstance(atari, Mapping):
            raise ConfigError(f"env.atari={atari}: it has keys with values, as in conf/env/atari.yaml")
        OmegaConf.update(schemas, "env.atari", OmegaConf.structured(Atari))
    nodes = {group: values[group] for group in MEMBERS if group != "tracker"}
    for key, node in (nodes | {f"tracker.{name}": node for name, node in values["tracker"].items()}).items():
        with suppress(Exception):  # `instantiate` will say what is wrong
            OmegaConf.update(schemas, key, choice_schema(pydoc.locate(node["_target_"])))
    return schemas


def choice_schema(cls: Any, *free: str) -> DictConfig:
    """The schema of a choice of the dataclass `cls`: its fields, and `_target_`; see `with_free_keys`."""
    schema = with_free_keys(cls, *free)
    with open_dict(schema):
        schema["_target_"] = "???"
    return schema


def with_free_keys(cls: Any, *paths: str) -> DictConfig:
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
for choice in CHOICES:
    cls: Any = pydoc.locate(choice)
    store.store(cls.__name__, choice_schema(cls, *(["names"] if cls is Own else [])))
