"""From command-line overrides to a checked configuration, or to a one-line error that says what to change.

YAML files under conf/ hold every value and its explanation; the classes hold the types. The choices of the groups
`framework`, `backend`, `network`, `algorithm` and `tracker` name their class by `_target_`, and the fields of that
class are their typed keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import plain
from ppo_bench.configuration.choices import BUILDS, choice_class
from ppo_bench.configuration.compose import compose_root, typed
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.ranges import check_values
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.tuning.switches import Tuning

RETIRED = ("opponents", "rating")
"""Root keys of older runs that say nothing of how their policies act."""


def load_config(overrides: Sequence[str], name: str = "config", schema: type[RootSchema] = RootSchema) -> Config:
    """Compose `conf/<name>.yaml`, of type `schema`, with `overrides` and check it. Raises `ConfigError` with one line.

    Callers check whether framework and backend can run it: `config.require()`.
    """
    return checked(compose_root(name, overrides), name, schema, overrides)


def recorded_config(recorded: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The configuration in a run.json, with `changes` in place of its root keys or groups.

    Keys that are newer than the run have their defaults. Raises `ConfigError`.
    """
    defaults: Any = OmegaConf.to_container(compose_root("config", []))
    if (recorded.get("opponents") or {}).get("pool_size"):
        raise ConfigError("it was trained against opponents from its past, which this version lacks")
    own: Any = {key: value for key, value in recorded.items() if key not in RETIRED}
    own |= {**changes, "tracker": {}}
    kept = {key: value for key, value in defaults.items() if key != "env" and not (key in BUILDS and key in own)}
    merged: Any = OmegaConf.merge(kept, own)
    return checked(merged)


def checked(
    composed: DictConfig, name: str = "config", schema: type[RootSchema] = RootSchema, overrides: Sequence[str] = ()
) -> Config:
    """The checked configuration of a composed `conf/<name>.yaml`. Raises `ConfigError` with one line.

    `overrides` are the words that composed it; none if it is that of a recorded run.
    """
    config = replace(_typed_config(composed, name, schema), overrides=tuple(overrides))
    check_values(config)
    if overrides and any(part.startswith(".") for part in Path(config.root.name).parts):
        raise ConfigError(f"name={config.root.name}: no command would find runs in a hidden folder")
    config.task  # noqa: B018 (raises if the backend has no such environment)
    return config


def _typed_config(composed: DictConfig, name: str, schema: type[RootSchema]) -> Config:
    root = typed("", schema, composed, name)
    root.outputs = os.path.expanduser(root.outputs)
    if root.checkpoint.load is not None:
        root.checkpoint.load = os.path.expanduser(root.checkpoint.load)
    groups = {group: getattr(root, group) for group in ("framework", "backend", "network", "algorithm")}
    ppo, tuning = typed("ppo", Hyperparameters, root.ppo), typed("tuning", Tuning, root.tuning)
    choices = {group: typed(group, choice_class(group, node), node) for group, node in groups.items()}
    trackers = {key: typed(f"tracker.{key}", choice_class("tracker", node), node) for key, node in root.tracker.items()}
    # Plain values come from the typed objects, so that 1 and 1.0 are the same configuration.
    resolved, hashed = (
        of(root)
        | {"ppo": of(ppo), "tuning": of(tuning)}
        | {group: {"_target_": groups[group]["_target_"]} | of(choice) for group, choice in choices.items()}
        for of in (asdict, plain)
    )
    for key, tracker in trackers.items():
        resolved["tracker"][key] |= asdict(tracker)
    if not hashed["tuning"]:
        del hashed["tuning"]
    return Config(root=root, resolved=resolved, hashed=hashed, trackers=trackers, ppo=ppo, tuning=tuning, **choices)
