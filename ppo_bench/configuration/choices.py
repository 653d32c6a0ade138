"""Choices of the configuration groups: their interfaces, and the classes that YAML files name by `_target_`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Protocol

from omegaconf import DictConfig

from ppo_bench.common.classes import class_named
from ppo_bench.common.errors import ConfigError
from ppo_bench.networks.network import NetworkSpec

BUILDS = {"framework": "runner", "backend": "make", "network": "build", "algorithm": "loss", "tracker": "open"}
"""Method that each choice of a group has to have, by group."""


class Network(Protocol):
    """A choice of the group `network`, made from its YAML file."""

    def build(self, observation_space: Any, action_space: Any) -> NetworkSpec:
        """The network for these spaces."""


class Tracker(Protocol):
    """A choice of the group `tracker`, made from its YAML file."""

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range. A package missing on this machine does not end the run."""

    def open(self, folder: Path, run: dict[str, Any]) -> Any:
        """The `Mirror` (ppo_bench/runs/trackers/mirror.py) of the run in `folder`, whose run.json is `run`.

        May raise anything.
        """


def choice_class(group: str, node: Any) -> Any:
    """The class named by the `_target_` of a group's choice. Raises `ConfigError` if it is not of the group."""
    cls = class_named(f"{group}._target_", node.get("_target_", "") if isinstance(node, Mapping | DictConfig) else node)
    if not (is_dataclass(cls) and hasattr(cls, BUILDS[group])):
        raise ConfigError(
            f"{group}._target_={node['_target_']} is not a choice of the group {group}: that is a dataclass with "
            f"`{BUILDS[group]}`; docs/architecture.md, Growing"
        )
    return cls
