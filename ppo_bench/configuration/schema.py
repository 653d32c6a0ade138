"""Types of the configuration's keys, in Hydra's ConfigStore. Their values and explanations are in conf/.

Each choice of a group names the schema of its keys first in its `defaults`, by the name of its class. A field's
metadata says whether it is part of a run's identity; see `ppo_bench.common.values`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.classes import class_named
from ppo_bench.common.values import NOT_TRAINED, younger
from ppo_bench.tuning.switches import Tuning

CHOICES = (
    *(f"ppo_bench.runners.frameworks.{name}" for name in ("Torch", "TorchCompile", "Jax")),
    *("ppo_bench.envs.gymnasium.GymnasiumBackend", "ppo_bench.envs.envpool.EnvPoolBackend"),
    *("ppo_bench.envs.envpool_xla.EnvPoolXlaBackend", "ppo_bench.envs.pettingzoo.PettingZooBackend"),
    *("ppo_bench.envs.device.DeviceBackend", "ppo_bench.envs.tensors.TensorsBackend"),
    *(f"ppo_bench.networks.spec.{name}" for name in ("Mlp", "Combined", "RecurrentMlp", "RecurrentCnn")),
    *(f"ppo_bench.networks.spec.{name}" for name in ("NatureCnn", "ImpalaCnn", "MinAtarCnn", "RndCnn")),
    *("ppo_bench.networks.own.Own", "ppo_bench.networks.transformer.Trxl"),
    *("ppo_bench.algorithms.ppo.Ppo", "ppo_bench.algorithms.rnd.Rnd"),
    *("ppo_bench.runs.trackers.tensorboard.Tensorboard", "ppo_bench.runs.trackers.wandb.Wandb"),
)
"""Classes of the choices of groups."""
FREE = {"Own": ("names",)}
"""Dictionaries of choices whose keys the user chooses, by class."""


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


def schema_of(cls: type) -> DictConfig:
    """The keys of a choice: the fields of the dataclass `cls`, and `_target_` if the choice is instantiated."""
    schema = with_free_keys(cls, *FREE.get(cls.__name__, ()))
    if cls not in (Hyperparameters, Tuning):
        with open_dict(schema):
            schema["_target_"] = "???"
    return schema


def with_free_keys(cls: type, *paths: str) -> DictConfig:
    """The schema of the dataclass `cls`, whose dictionaries at these paths have the keys that a user chooses."""
    schema: Any = OmegaConf.structured(cls)
    OmegaConf.set_readonly(schema, None)  # frozen classes start read-only
    schema = OmegaConf.merge(schema, OmegaConf.from_dotlist([f"{path}={{}}" for path in paths]))
    for path in paths:
        OmegaConf.set_struct(OmegaConf.select(schema, path), False)
    return schema


def store_schemas() -> None:
    """Put the schema of each choice into Hydra's ConfigStore."""
    store = ConfigStore.instance()
    store.store("RootSchema", with_free_keys(RootSchema, "grid", "env.kwargs"))
    for cls in (Hyperparameters, Tuning, *(class_named("_target_", target) for target in CHOICES)):
        store.store(cls.__name__, schema_of(cls))


store_schemas()
