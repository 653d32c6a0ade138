"""Plain values: configurations as dictionaries and lists, their digests, and names of files made from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any


def younger(default: Any) -> Any:
    """A dataclass field that older runs did not have: at this default it is not hashed, and so moves no folder."""
    metadata = {"younger": default}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def plain(value: Any) -> Any:
    """`dataclasses.asdict` without the fields that are `younger` and at their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: plain(getattr(value, f.name))
            for f in fields(value)
            if "younger" not in f.metadata or f.metadata["younger"] != getattr(value, f.name)
        }
    if isinstance(value, Mapping):
        return {key: plain(child) for key, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list | tuple) else value


def digest(value: Any) -> str:
    """Eight characters that stand for plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def file_name(name: str) -> str:
    """`name` with everything but letters, digits, dots, hyphens and underscores replaced, safe for a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "_"
