"""Choices of the configuration groups: their interfaces, and the classes that YAML files name by `_target_`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hydra.utils import instantiate
from omegaconf import DictConfig

from ppo_bench.common.errors import ConfigError
from ppo_bench.networks.network import NetworkSpec

BUILDS = {"framework": "runner", "backend": "make", "network": "build", "algorithm": "loss", "tracker": "open"}
"""Method that each choice of a group has to have, by group."""


class Network(Protocol):
    """A choice of the group `network`, made from its YAML file."""

    def build(self, observation_space: Any, action_space: Any, streams: int = 1) -> NetworkSpec:
        """The network for these spaces, with a value for each of the algorithm's `streams` of rewards."""


class OpenTracker(Protocol):
    """A tracker of one run, in the process that trains it. What it raises becomes a warning, and the last call."""

    def log(self, values: Mapping[str, float], global_step: int, wall_time: float) -> None:
        """Log the values of an iteration by tag. It ended at `global_step`, and at `wall_time` (seconds since 1970)."""

    def log_film(self, path: Path, global_step: int) -> None:
        """Log the mp4 file of an episode by the checkpoint at `global_step`."""

    def finish(self, result: Mapping[str, Any] | None) -> None:
        """Log result.json if the run is complete, else None, and close the tracker."""


class Tracker(Protocol):
    """A choice of the group `tracker`, made from its YAML file."""

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range. A package missing on this machine does not end the run."""

    def open(self, folder: Path, run: Mapping[str, Any]) -> OpenTracker:
        """Begin to log the run in `folder`, whose run.json is `run`, or go on with it if it is resumed.

        The rows of an earlier part of the training are logged again. May raise anything.
        """


def choice(group: str, node: DictConfig, key: str = "") -> Any:
    """The instance of a choice of `group`, whose key is `key` if that is another one. Raises `ConfigError`."""
    made: Any = instantiate(node, _convert_="object") if isinstance(node, DictConfig) else None
    if not hasattr(made, BUILDS[group]):
        raise ConfigError(
            f"{key or group}={node} is not a choice of the group {group}, whose class has a method `{BUILDS[group]}`; "
            "docs/architecture.md, Growing"
        )
    return made
