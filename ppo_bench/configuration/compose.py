"""Configurations composed by Hydra, outside and inside of its application, and its errors as one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from ppo_bench.common.errors import ConfigError, nearest, one_line
from ppo_bench.common.paths import CONF


def snake_case(name: object) -> str:
    """A name in snake case: `MsPacman` becomes `ms_pacman`, `UpNDown` `up_n_down`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(name)).lower()


OmegaConf.register_new_resolver("snake_case", snake_case, replace=True)
OmegaConf.register_new_resolver("expanduser", os.path.expanduser, replace=True)


@contextmanager
def config_loader(words: Sequence[str] = ()) -> Iterator[ConfigLoader]:
    """Hydra's loader of the YAML files: that of the running application, else one for conf/.

    What Hydra raises, for the `words` of a command, becomes a `ConfigError`.
    """
    is_running = GlobalHydra.instance().is_initialized()
    try:
        with nullcontext() if is_running else initialize_config_dir(str(CONF), version_base="1.3"):
            yield GlobalHydra.instance().config_loader()
    except ConfigError:
        raise
    except Exception as error:  # Hydra passes on any error of its parser and its YAML files
        raise config_error(error, words) from error


def compose_root(name: str, overrides: Sequence[str]) -> DictConfig:
    """`conf/<name>.yaml` composed with `overrides`. Raises `ConfigError`."""
    return without_hydra(compose_with_hydra(name, overrides))


def compose_with_hydra(name: str, overrides: Sequence[str]) -> DictConfig:
    """`conf/<name>.yaml` composed with `overrides`, and Hydra's own node in it. Raises `ConfigError`."""
    with config_loader(overrides):
        return compose(name, overrides=list(overrides), return_hydra_config=True)


def without_hydra(root: DictConfig) -> DictConfig:
    """A composed configuration without Hydra's own node."""
    job = root.copy()
    with open_dict(job):
        del job["hydra"]
    return job


def config_error(error: BaseException, words: Sequence[str] = ()) -> ConfigError:
    """An error of Hydra or OmegaConf for the `words` of a command, as one line; the `ConfigError` behind it, if any."""
    chain = [error]
    while not isinstance(chain[-1], ConfigError) and (cause := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(cause)
    if isinstance(chain[-1], ConfigError):
        return chain[-1]
    if isinstance(error, MissingConfigException):
        name, first_line = error.missing_cfg_file or "", str(error).splitlines()[0]
        group, _, choice = name.rpartition("/")
        nested = {path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).rglob("*.yaml")}
        options = sorted(nested | {each for each in error.options or () if not (CONF / group / each).is_dir()})
        said = _unknown(name, choice, options) if error.options else first_line
        may_be_id = group == "env" and not nearest(choice, error.options or ())
        return ConfigError(f"{said}; for an id of the backend: env.id={choice}" if may_be_id else said)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        path = Path(str(error.filename))
        is_config = path.suffix == ".yaml" and ".hydra" not in path.parts and path.name != "multirun.yaml"
        action, advice = (
            ("read", "") if is_config else ("write to", "; choose another folder by outputs= or hydra.run.dir=")
        )
        return ConfigError(f"cannot {action} {error.filename}: {error.strerror}{advice}")
    inner = next((each for each in chain if isinstance(each, OmegaConfBaseException)), None)
    if inner is None:
        where = f"; in {' '.join(words)}" if words and not isinstance(error, HydraException) else ""
        return ConfigError(one_line(error.__cause__ if isinstance(error.__cause__, ImportError) else error) + where)
    if isinstance(inner, ConfigKeyError | ConfigAttributeError) and isinstance(inner.parent_node, DictConfig):
        return ConfigError(_unknown_key(str(inner.full_key), str(inner.key), inner.parent_node))
    outer = inner.full_key if inner is error else str(error).splitlines()[0].rstrip(".:")
    said = str(inner).splitlines()[0]
    return ConfigError(f"{outer}: {said}" if outer else said)


def _unknown_key(full_key: str, key: str, node: DictConfig) -> str:
    """Words for a key that `node` does not have."""
    if full_key == "experiment":
        return "unknown key experiment: a file of the group experiment begins with the line # @package _global_"
    names = [str(name) for name in node]
    present = (name for name in names if not OmegaConf.is_missing(node, name))
    groups = [name for name in present if not OmegaConf.is_interpolation(node, name) and _has(node[name], key)]
    if groups:
        return f"unknown key {full_key}; did you mean {', '.join(f'{name}.{key}' for name in groups)}?"
    return _unknown(f"key {full_key}", key, names)


def _has(node: Any, key: str) -> bool:
    return isinstance(node, DictConfig) and key in node


def _unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Words for what does not exist, with the nearest of the `known` names, or all of them."""
    names = [name for name in known if name != "hydra"]
    close = nearest(word, names)
    choices = f"; choose from {' '.join(names)}" if names else ""
    return f"unknown {what}" + (f"; did you mean {', '.join(close)}?" if close else choices)


def key_of(override: str) -> str:
    """The key that an override sets, as in `ppo.gamma` for `ppo.gamma=0.9`, or the group that it chooses from."""
    return override.lstrip("+~").partition("=")[0]


def search_path(overrides: Sequence[str]) -> list[str]:
    """The overrides that set Hydra's search path, for YAML files outside of the package."""
    return [word for word in overrides if word.startswith("hydra.searchpath=")]


def of_hydra(overrides: Sequence[str]) -> list[str]:
    """The overrides of Hydra's own keys and groups."""
    return [word for word in overrides if key_of(word).startswith(("hydra.", "hydra/"))]


def refuse_of_hydra(overrides: Sequence[str], advice: str) -> None:
    """Raise `ConfigError` with `advice` for an override of Hydra's own keys and groups, except its search path."""
    for word in of_hydra(overrides):
        if not search_path([word]):
            raise ConfigError(f"{word}: Hydra's own keys are {advice}")
