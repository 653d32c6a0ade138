"""Choices of the groups: what each must be able to do, and the classes that YAML files name by `_target_`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig

from ppo_bench.common.classes import class_named
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, Task, VectorEnv
from ppo_bench.networks.network import NetworkSpec

BUILDS = {"framework": "runner", "backend": "make", "network": "build", "algorithm": "loss", "tracker": "open"}
"""The method by which a group's choice is put to use."""


class Backend(Protocol):
    """A choice of the group `backend`: where environments come from. Made from its YAML file."""

    in_graph: ClassVar[bool]
    """Its environments are `GraphEnv`s, part of a JAX program; false where they live on the host."""
    vmappable: ClassVar[bool]
    """Several sets of its environments can be stepped by `jax.vmap`, which several seeds at once take."""
    name: str

    def require(self) -> None:
        """Raise `ConfigError` if its packages are not installed or an option is out of range."""

    def make(self, task: Task) -> VectorEnv | GraphEnv:
        """The environments of `task`."""


class Network(Protocol):
    """A choice of the group `network`. Made from its YAML file."""

    def build(self, observation_space: Any, action_space: Any) -> NetworkSpec:
        """The network for these spaces."""


class Tracker(Protocol):
    """A choice of the group `tracker`. Made from its YAML file."""

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range. What is missing on this machine costs no run."""

    def open(self, folder: Path, run: dict[str, Any]) -> Any:
        """The `Mirror` (ppo_bench/runs/trackers/mirror.py) of the run in `folder`, whose run.json is `run`.

        May raise anything.
        """


def choice_class(group: str, node: Any) -> Any:
    """The class that the `_target_` of a group's choice names. Raises `ConfigError` if it is none of the group's."""
    cls = class_named(f"{group}._target_", node.get("_target_", "") if isinstance(node, Mapping | DictConfig) else node)
    if not (is_dataclass(cls) and hasattr(cls, BUILDS[group])):
        raise ConfigError(
            f"{group}._target_={node['_target_']} is not a choice of the group {group}: that is a dataclass with "
            f"`{BUILDS[group]}`; docs/architecture.md, Growing"
        )
    return cls
