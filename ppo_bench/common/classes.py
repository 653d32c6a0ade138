"""Import of classes by their dotted names, as written in YAML files and run.json."""

from __future__ import annotations

import importlib.util
import pydoc
from typing import Any

from ppo_bench.common.errors import ConfigError, one_line


def import_class(key: str, target: object, kind: type = object) -> Any:
    """The class that `target`, of the form `package.module.Class`, names.

    Raises `ConfigError` if it cannot be imported or is no subclass of `kind`; `key` is the key in its message.
    """
    try:
        cls = pydoc.locate(str(target))
    except Exception as error:  # a user's module can raise anything
        if isinstance(error, pydoc.ErrorDuringImport) and isinstance(error.value, KeyboardInterrupt):
            raise error.value from None
        raise ConfigError(f"{key} names no class that can be imported: {one_line(error)}") from error
    if not isinstance(cls, type):
        lacks, module = f"there is no class {target!r}", str(target).partition(".")[0]
        if module and importlib.util.find_spec(module) is None:
            lacks = f"there is no module {module!r} where Python looks; PYTHONPATH=FOLDER adds a folder"
        raise ConfigError(f"{key} names no class that can be imported: {lacks}")
    if not issubclass(cls, kind):
        raise ConfigError(f"{key}={target} is no {kind.__module__.partition('.')[0]}.{kind.__name__}")
    return cls
