"""Metadata of configuration fields, and digests, quoted words and file names of configurations."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any, NamedTuple

from ppo_bench.common.errors import ConfigError


class Range(NamedTuple):
    """The range of a field's values other than null: a test, and the words for what fails it."""

    holds: Callable[[Any], object]
    words: str


def within(holds: Callable[[Any], object], words: str) -> dict[str, Any]:
    """Metadata of a dataclass field: its range; see `check_ranges`."""
    return {"range": Range(holds, words)}


AT_LEAST_1 = within(lambda value: value >= 1, "must be at least 1")
POSITIVE = within(lambda value: 0 < value < math.inf, "must be above 0 and finite")
NOT_NEGATIVE = within(lambda value: 0 <= value < math.inf, "must not be negative or infinite")


def check_ranges(values: Any, prefix: str = "") -> None:
    """Raise `ConfigError` for the first field of a dataclass, or of one in it, whose value is out of its range."""
    for each in fields(values):
        key, value = f"{prefix}{each.name}", getattr(values, each.name)
        if is_dataclass(value):
            check_ranges(value, f"{key}.")
        elif value is not None and "range" in each.metadata and not each.metadata["range"].holds(value):
            raise ConfigError(f"{key}={value}: {each.metadata['range'].words}")


def added_field(default: Any, metadata: Mapping[str, Any] | None = None) -> Any:
    """A dataclass field that was added later, with a default that equals the earlier behaviour.

    At its default the field is left out of the configuration's hash, so that the folders of older runs stay valid.
    """
    metadata = {"added_field": default, **(metadata or {})}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


NOT_HASHED: dict[str, Any] = {"not_hashed": True}
"""Metadata of a dataclass field that does not change what is trained. The configuration's hash leaves it out."""


def added_field_defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass's `added_field` fields: the values of runs that do not name them."""
    return {f.name: f.metadata["added_field"] for f in fields(cls) if "added_field" in f.metadata}


def env_name_and_id(config: Mapping[str, Any]) -> tuple[str, str]:
    """Name and id of a configuration's environment; an `env.id` equal to the id in its file changes neither."""
    env = config["env"]
    own = env["ids"].get(config["backend"]["name"])
    return (env["name"], own) if env.get("id") in (None, own) else (env["id"], env["id"])


def digest(value: Any) -> str:
    """The first eight hexadecimal digits of the SHA-256 of `value` as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def quote(text: str) -> str:
    """`text` in quotes, as Hydra's grammar reads it."""
    # Backslashes are doubled before a quote alone, the closing one included.
    escaped = re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"


def file_name(name: str) -> str:
    """`name` as a safe file name: all but letters, digits, dots, hyphens and underscores become underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "_"
