"""Classes by their names, as YAML files and run.json have them."""

from __future__ import annotations

from typing import Any

from ppo_bench.common.errors import ConfigError


def class_named(key: str, target: object, kind: type = object) -> Any:
    """The class `package.module.Class` that `target` names, if it is a `kind`.

    Raises `ConfigError`, which names `key`, otherwise.
    """
    from hydra.utils import get_class

    try:
        cls = get_class(str(target))
    except Exception as error:  # importing whatever was named
        raise ConfigError(f"{key} names no class that can be imported: {' '.join(str(error).split())}") from error
    if not issubclass(cls, kind):
        raise ConfigError(f"{key}={target} is no {kind.__module__.partition('.')[0]}.{kind.__name__}")
    return cls
