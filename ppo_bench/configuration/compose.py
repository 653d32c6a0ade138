"""Configurations composed by Hydra, and its errors as one line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from ppo_bench.common.errors import ConfigError, nearest, one_line
from ppo_bench.common.paths import CONF


def snake_case(name: object) -> str:
    """A name in snake case: `MsPacman` becomes `ms_pacman`, `UpNDown` `up_n_down`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(name)).lower()


OmegaConf.register_new_resolver("snake_case", snake_case, replace=True)


def compose_root(root: str, overrides: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    """`conf/<root>.yaml` composed with `overrides`, and Hydra's own keys if `with_hydra`. Raises `ConfigError`."""
    running = GlobalHydra.get_state()  # the state of a sweep that runs this job
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose(root, overrides=list(overrides), return_hydra_config=with_hydra)
    except Exception as error:  # Hydra passes on any error of its parser and its YAML files
        raise config_error(error, overrides) from error
    finally:
        GlobalHydra.set_state(running)


def to_schema(composed: DictConfig, plain: Collection[str] = ()) -> Any:
    """An instance of the dataclass that is the schema of `composed`; its nodes `plain` are dictionaries.

    Raises `ConfigError` if a value is missing, or a key is not in its schema.
    """
    try:
        _require_known(composed)
        cls: Any = OmegaConf.get_type(composed)
        typed: Any = OmegaConf.to_object(
            OmegaConf.masked_copy(composed, [k for k in map(str, composed) if k not in plain])
        )
        nodes = {key: OmegaConf.to_container(composed[key], resolve=True) for key in plain if composed[key] is not None}
        return cls(**(dict.fromkeys(plain) | typed | nodes))
    except OmegaConfBaseException as error:
        raise config_error(error) from error


def _require_known(node: DictConfig, path: str = "") -> None:
    """Raise `ConfigError` for a key that `+key=value` has added to a node with a schema."""
    cls = OmegaConf.get_type(node)
    known = {"_target_", *(field.name for field in fields(cls))} if is_dataclass(cls) else set(map(str, node))
    for key in node:
        if (name := str(key)) not in known:
            raise ConfigError(f"there is no key {path}{name}{_did_you_mean(name, known)}")
        if not OmegaConf.is_missing(node, key) and isinstance(child := node[key], DictConfig):
            _require_known(child, f"{path}{name}.")


def config_error(error: BaseException, overrides: Sequence[str] = ()) -> ConfigError:
    """What Hydra or OmegaConf has raised for `overrides` as one line; the `ConfigError` itself if there is one."""
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return ConfigError(f"cannot write to {error.filename}: {error.strerror}; choose another folder by outputs=")
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    if found := next((each for each in chain if isinstance(each, ConfigError)), None):
        return found
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        close = _did_you_mean(error.missing_cfg_file.rpartition("/")[2], error.options or ())
        return ConfigError(f"there is no {error.missing_cfg_file}{close}" if close else _message(error))
    inner = next((each for each in chain if isinstance(each, OmegaConfBaseException)), None)
    if inner is None:
        why = f": {one_line(chain[-1])}" if isinstance(error, InstantiationException) and len(chain) > 1 else ""
        names_none = not isinstance(error, HydraException)
        return ConfigError(_message(error) + why + (f"; in {' '.join(overrides)}" if names_none and overrides else ""))
    said = _message(inner)
    if isinstance(inner, ConfigKeyError | ConfigAttributeError) and isinstance(inner.parent_node, DictConfig):
        said += _did_you_mean(str(inner.key), map(str, inner.parent_node))
    outer = inner.full_key if inner is error else str(error).splitlines()[0].rstrip(".:")
    return ConfigError(f"{outer}: {said}" if outer else said)


def _message(error: BaseException) -> str:
    """The message of an error without the lines about types and paths that Hydra and OmegaConf append."""
    return one_line(re.split(r"\n *full_key:|\nConfig search path:", str(error))[0])


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = nearest(word, known)
    return f"; did you mean {', '.join(close)}?" if close else ""


def key_of(override: str) -> str:
    """The key that an override sets, as in `ppo.gamma` for `ppo.gamma=0.9`, or the group that it chooses from."""
    return override.lstrip("+~").partition("=")[0]


def is_a_sweep(keys: Sequence[str]) -> ConfigError:
    """The refusal of an experiment that sweeps over `keys` where one run is asked for."""
    return ConfigError(f"this experiment is a sweep over {', '.join(keys)}: run it by -m, or give them one value each")


def search_path(overrides: Sequence[str]) -> list[str]:
    """The overrides that set Hydra's search path, for YAML files outside of the package."""
    return [word for word in overrides if word.startswith("hydra.searchpath=")]


def of_hydra(overrides: Sequence[str]) -> list[str]:
    """The overrides of Hydra's own keys and groups, with its search path."""
    return [word for word in overrides if key_of(word).startswith(("hydra.", "hydra/"))]


def offered() -> list[tuple[str, str, str]]:
    """All pairs of an env and a backend that its file lists, with the environment's id on that backend."""
    files = {path.stem: _env_file(path.stem) for path in sorted((CONF / "env").glob("*.yaml"))}
    return [(env, backend, env_id) for env, file in files.items() for backend, env_id in file.env.ids.items()]


def _env_file(name: str) -> Any:
    """A file under conf/env merged with the files that it builds on."""
    file: Any = OmegaConf.load(CONF / "env" / f"{name}.yaml")
    bases = [_env_file(base) for base in file.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return OmegaConf.merge(*bases, file)
