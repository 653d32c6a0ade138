"""Import of classes by their dotted names, as written in YAML files and run.json."""

from __future__ import annotations

import importlib
from typing import Any

from ppo_bench.common.errors import ConfigError, one_line


def import_class(key: str, target: object, kind: type = object) -> Any:
    """The class that `target`, of the form `package.module.Class`, names.

    Raises `ConfigError` if it cannot be imported or is no subclass of `kind`; `key` is the key in its message.
    """
    module, _, name = str(target).rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module can raise anything
        raise ConfigError(f"{key} names no class that can be imported: {one_line(error)}") from error
    if not isinstance(cls, type):
        raise ConfigError(f"{key}={target} is no class")
    if not issubclass(cls, kind):
        raise ConfigError(f"{key}={target} is no {kind.__module__.partition('.')[0]}.{kind.__name__}")
    return cls
