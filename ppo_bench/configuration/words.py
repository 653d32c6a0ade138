"""Command-line overrides that compose to the configuration of a run.json."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config, recorded_config

LEFT_OUT = {
    *("name", "outputs", "rerun", "num_seeds", "tracker", "video", "evaluation", "rating"),
    *("checkpoint.keep", "checkpoint.load", "env.name", "env.ids", "env.info"),
}
"""Keys, with all keys below them, that only affect storage and display, or that follow from other keys."""
GAMES = ("atari", "atari_two_players", "procgen")
"""Choices of `env` that take any game as `env.game`."""
SEARCHED = ("network", "algorithm", "opponents", "tuning", "ppo")
"""Groups whose choice a run.json does not name; the choice that leaves the fewest keys to set is taken."""
WHOLE = ("env.kwargs", "env.atari")
"""Keys set as one value, since they may be null."""
BARE = re.compile(r"[A-Za-z][\w./-]*")
"""Strings that Hydra's grammar reads without quotes, unless they are names of other values such as `null`."""


def words_for(recorded: Mapping[str, Any]) -> list[str] | None:
    """A short list of overrides that train the configuration of a run.json again.

    The overrides do not name the checkpoint that the run started from, if there was one. None if this package's own
    choices do not compose to the same configuration, for instance if the environment has a YAML file of the user's.
    """
    wanted = _leaves(recorded_config(recorded, {"checkpoint": {**recorded["checkpoint"], "load": None}}))
    words = [*_env(recorded, wanted), f"framework={recorded['framework']['name']}"]
    words = min([words, [*words, f"backend={recorded['backend']['name']}"]], key=lambda some: _left(some, wanted))
    for group in SEARCHED:
        if any(key.split(".")[0] == group for key in _differing(words, wanted)):
            choices = [[*words, f"{group}={name}"] for name in _choices(group, recorded[group])]
            words = min([words, *choices], key=lambda some: _left(some, wanted))
    found = _differing(words, wanted)
    words += [f"{key}={written(wanted[key])}" for key in sorted(found) if key in wanted and "_target_" not in key]
    return None if _differing(words, wanted) else words


def written(value: Any) -> str:
    """A plain value in the grammar of Hydra's command line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    if (
        isinstance(value, str)
        and BARE.fullmatch(value)
        and value.lower() not in ("null", "true", "false", "nan", "inf")
    ):
        return value
    return json.dumps(value)


def _env(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    env = recorded["env"]
    if (CONF / "env" / f"{env['name']}.yaml").exists():
        return [f"env={env['name']}"]
    if not env.get("game"):
        return []
    games = [[f"env={group}", f"env.game={written(env['game'])}"] for group in GAMES]
    return min(games, key=lambda words: _left(words, wanted))


def _choices(group: str, node: Mapping[str, Any]) -> list[str]:
    """The choices of a group that may have the class of `node`; a file without `_target_` builds on another file."""
    target = node.get("_target_")
    files: dict[str, Any] = {path.stem: OmegaConf.load(path) for path in sorted((CONF / group).glob("*.yaml"))}
    return [name for name, file in files.items() if file.get("_target_", target) == target]


def _left(words: list[str], wanted: Mapping[str, Any]) -> int:
    """Number of keys that still differ after `words`; all of them if the words do not compose."""
    return len(_differing(words, wanted))


def _differing(words: list[str], wanted: Mapping[str, Any]) -> set[str]:
    found, nothing = _composed(tuple(words)), object()
    return {key for key in {*found, *wanted} if found.get(key, nothing) != wanted.get(key, nothing)}


@functools.lru_cache(maxsize=64)
def _composed(words: tuple[str, ...]) -> dict[str, Any]:
    """The leaves of the configuration that the words compose to, which takes 0.1 s; empty if the words are wrong."""
    try:
        return _leaves(load_config(words))
    except ConfigError:
        return {}


def _leaves(config: Config) -> dict[str, Any]:
    """The values of a configuration by key, without the keys in `LEFT_OUT`; `env.id` is never null."""
    return dict(_below("", config.resolved)) | {"env.id": config.task.id}


def _below(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if key in LEFT_OUT:
        return
    if isinstance(value, Mapping) and key not in WHOLE:
        for name, child in value.items():
            yield from _below(f"{key}.{name}".lstrip("."), child)
    else:
        yield key, value
