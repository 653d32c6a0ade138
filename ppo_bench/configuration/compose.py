"""From a root YAML file and command-line overrides to typed values, or to a one-line error that says what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ppo_bench.common.errors import ConfigError, nearest, one_line
from ppo_bench.common.paths import CONF
from ppo_bench.common.values import quoted

MANY_KEYS = 20  # more than fit in one line
UNQUOTED = re.compile(r"^([^=]+)=((?=~|[^=]*[^\x00-\x7f])[^'\"\[\]{}(),]+)$")
"""An override whose value Hydra's grammar needs in quotes: it begins with `~`, or has characters outside of ASCII."""
FOLDERS = re.compile(r"(\+*(?:name|outputs))=((?!null$)[\w.+-]+(?:,[\w.+-]+)*)", re.ASCII)
"""Names of folders, which may look like numbers: 1.10 and 1.1 are two."""
LISTS = ("experiment", "tracker")
"""Groups of which several choices can be made at once."""
FREE = ("grid", "env.kwargs")
"""Keys of dictionaries whose own keys the user chooses."""
PLAINLY = {
    r"Ambiguous value for argument '([^']*)'.*": r"\1: several values make a sweep, by -m; a list is written [a,b]",
    r"Sweep parameters '([^']*)' requires --multirun": r"\1: several values make a sweep, by -m",
    r"([^:]*): .*is not a ListConfig.*": r"\1: expected a list, such as [a,b]",
    r"([^:]*): Cannot assign \w+ to Dict.*": r"\1: expected keys with values, such as {a:1}",
    r"Cannot merge DictConfig with ListConfig": "a list is given where keys with values are expected, such as {a:1}",
    r"([^:]*): .*has missing mandatory value.*": r"\1: has no value; give it one, or leave out what is set beside it",
    r"([^:]*): .*is not a subclass of \w+Schema\..*": r"\1: set one of the keys below it, as in \1.key=value",
}
"""Messages of OmegaConf and Hydra, and their replacements in plain words."""


def snake_case(name: object) -> str:
    """A name in snake case: `MsPacman` becomes `ms_pacman`, `UpNDown` `up_n_down`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(name)).lower()


OmegaConf.register_new_resolver("snake_case", snake_case, replace=True)


def compose_root(root: str, overrides: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    """`conf/<root>.yaml` composed with `overrides`, and Hydra's own keys if `with_hydra`. Raises `ConfigError`."""
    require_one_choice(overrides)
    try:
        return _compose(root, overrides, with_hydra=with_hydra)
    except Exception as error:  # Hydra passes on any error of its parser and its YAML files
        raise config_error(error, overrides, root) from error


def require_one_choice(overrides: Sequence[str]) -> None:
    """Raise `ConfigError` if a word chooses several of a group, which Hydra merges, except in the groups `LISTS`."""
    for word in overrides:
        group, value = key_of(word), word.partition("=")[2]
        if value.startswith("[") and group not in ("", *LISTS) and (CONF / group).is_dir():
            raise ConfigError(f"{word}: name one choice; several make a sweep, by -m {group}=a,b")


def config_error(error: Exception, overrides: Sequence[str], root: str = "config") -> ConfigError:
    """The `ConfigError` of what Hydra has raised for `overrides`: that of a resolver, or one that explains it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConfigError):
        cause = cause.__cause__ or cause.__context__
    if cause:
        return cause
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return ConfigError(f"cannot write to {error.filename}: {error.strerror}; choose another folder by outputs=")
    if "Config group override must be a string" in str(error):
        return ConfigError(f"{_group_without_name(overrides)}: name one of the group's choices")
    groups = [word for word in overrides if (CONF / key_of(word)).is_dir()]
    return ConfigError(explain(error, root=root, chosen=[*search_path(overrides), *groups]))


def _compose(root: str, overrides: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    running = GlobalHydra.get_state()  # the state of a sweep that runs this job
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose(root, overrides=readable(overrides), return_hydra_config=with_hydra)
    finally:
        GlobalHydra.set_state(running)


def typed(path: str, cls: Any, node: Any, root: str = "config") -> Any:
    """An instance of the dataclass `cls` from the keys of `node`, each checked against its type.

    `path` is the node's key in the configuration of `root`. Raises `ConfigError`.
    """
    if not isinstance(node, dict | DictConfig):
        raise ConfigError(f"{path}={node}: expected the keys of the group {path}, not one value")
    try:
        schema = OmegaConf.structured(cls)
        OmegaConf.set_readonly(schema, False)  # frozen classes start read-only
        values = _with_integers(cls, {key: value for key, value in node.items() if key != "_target_"})
        return OmegaConf.to_object(OmegaConf.merge(schema, values))
    except OmegaConfBaseException as error:
        raise ConfigError(explain(error, path, root)) from error


def _with_integers(cls: Any, values: Mapping[Any, Any]) -> dict[Any, Any]:
    """`values` with whole floats, such as 1e6, converted to integers where the dataclass `cls` has integers."""
    found, types = dict(values), get_type_hints(cls)
    for key, value in values.items():
        kinds = {types.get(key), *get_args(types.get(key))}  # `int | None` has two
        if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
            found[key] = int(value)
        elif isinstance(value, Mapping | DictConfig):
            nested = next((kind for kind in kinds if is_dataclass(kind)), None)
            found[key] = _with_integers(nested, dict(value.items())) if nested else value
    return found


def is_a_sweep(keys: Sequence[str]) -> ConfigError:
    """The refusal of an experiment that sweeps over `keys` where one run is asked for."""
    return ConfigError(f"this experiment is a sweep over {', '.join(keys)}: run it by -m, or give them one value each")


def key_of(override: str) -> str:
    """The key that an override sets, as in `ppo.gamma` for `ppo.gamma=0.9`, or the group that it chooses from."""
    return override.lstrip("+~").partition("=")[0]


def search_path(overrides: Sequence[str]) -> list[str]:
    """The overrides that set Hydra's search path, for YAML files outside of the package."""
    return [word for word in overrides if word.startswith("hydra.searchpath=")]


def of_hydra(overrides: Sequence[str]) -> list[str]:
    """The overrides of Hydra's own keys and groups, with its search path."""
    return [word for word in overrides if key_of(word).startswith(("hydra.", "hydra/"))]


def readable(overrides: Sequence[str]) -> list[str]:
    """The overrides with quotes around values that Hydra's grammar cannot read without them, or would read as numbers;
    see `UNQUOTED` and `FOLDERS`. Options, which begin with `-`, stay."""
    return [word if word[:1] == "-" else UNQUOTED.sub(r"\1='\2'", _quoted_folders(word)) for word in overrides]


def _quoted_folders(word: str) -> str:
    found = FOLDERS.fullmatch(word)
    return f"{found[1]}={','.join(map(quoted, found[2].split(',')))}" if found else word


def explain(error: Exception, path: str = "", root: str = "config", chosen: Sequence[str] = ()) -> str:
    """A composition error of Hydra or OmegaConf as one line; `path` is the prefix of the keys in it.

    `chosen` are the overrides that choose groups, whose keys are known besides.
    """
    if isinstance(error, OverrideParseException) and error.override:
        if "=" not in error.override and Path(error.override).exists():
            return f"{error.override!r} is one path too many: name one at a time"
        return f"{error.override!r} cannot be read: expected key=value; a value with spaces or brackets is quoted"
    text = str(error).split("Config search path")[0]
    if override := re.search(r"Could not (?:override|delete)[^']*'([^']*)'", text):
        is_null = "delete" in override[0] and override[1] in _known_keys(root, chosen)
        nothing = f"~{override[1]}: the key is null, so there is nothing to delete; leave ~{override[1]} out"
        return nothing if is_null else _no_key(override[1], root, chosen)
    full_key = re.search(r"full_key: (\S+)", text)
    text = re.sub(r"\s*(full_key|object_type|reference_type)[:=].*", "", text)
    text = re.sub(r"\s*See https?://\S+.*", "", text)
    if missing := re.search(r"Could not (?:find|load) '(hydra/\w+|\w+)/([^']*)'", text):
        return _no_choice(missing[1], missing[2], error)
    if full_key is None:
        return _plainly(one_line(text))
    key = f"{path}.{full_key[1]}".strip(".")
    return _no_key(key, root, chosen) if "not in" in text else _plainly(f"{key}: {one_line(text)}")


def _no_choice(group: str, choice: str, error: Exception) -> str:
    folder = CONF / group
    choices = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
    if group.startswith("hydra/"):  # most choices belong to plugins
        choices = sorted(getattr(error, "options", None) or choices)
    close = nearest(choice, choices)
    if len(choices) > MANY_KEYS and close:
        return f"{group}={choice}: there is no such choice; did you mean {', '.join(close)}?"
    if len(choices) > MANY_KEYS:
        return f"{group}={choice}: there is no such choice; python -m ppo_bench --help lists them"
    return f"{group}={choice}: there is no such choice; choose one of {', '.join(choices)}"


def _plainly(said: str) -> str:
    for jargon, meaning in PLAINLY.items():
        if match := re.fullmatch(jargon, said):
            return match.expand(meaning)
    return said


def offered() -> list[tuple[str, str, str]]:
    """All pairs of an env and a backend that its file lists, with the environment's id on that backend."""
    files = {path.stem: _env_file(path.stem) for path in sorted((CONF / "env").glob("*.yaml"))}
    return [(env, backend, env_id) for env, file in files.items() for backend, env_id in file.env.ids.items()]


def _env_file(name: str) -> Any:
    """A file under conf/env merged with the files that it builds on."""
    file: Any = OmegaConf.load(CONF / "env" / f"{name}.yaml")
    bases = [_env_file(base) for base in file.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return OmegaConf.merge(*bases, file)


def _group_without_name(overrides: Sequence[str]) -> str:
    """The first override that sets a whole group to something other than a name, such as `ppo=3`."""
    for override in overrides:
        group, _, choice = override.partition("=")
        if (CONF / group).is_dir() and (choice == "null" or not re.fullmatch(r"[A-Za-z_][\w/-]*", choice)):
            return override
    return "one of the groups"


def _no_key(key: str, root: str, chosen: Sequence[str]) -> str:
    known = _known_keys(root, chosen)
    if free := next((name for name in FREE if f"{key}.".startswith(f"{name}.")), None):
        return f"{free} has no such keys: ++{free}={{...}} adds to those of a file, and {free}=null takes them away"
    if below := [name for name in known if name.startswith(f"{key}.")]:  # a dictionary that was set as a whole
        return f"{key} has no such key; it has {', '.join(below)}"
    if choices := _choices_with(key):
        return f"there is no key {key}; that is a key of {', '.join(choices)}"
    ends = [name for name in known if not any(other.startswith(f"{name}.") for other in known)]
    ends = [name for name in ends if name.partition(".")[0] == key.partition(".")[0]] or ends
    group = key.rpartition(".")[0]
    if group in ends:
        return f"there is no key {key}; {group} has no keys with these choices"
    if (close := nearest(key, ends if "." in key else known)) and close[0] != key:
        return f"there is no key {key}; did you mean {close[0]}?"
    beside = [name for name in ends if group and name.rpartition(".")[0] == group] or known
    hint = f"there are {', '.join(beside)}"
    if len(beside) >= MANY_KEYS:
        also = "" if root == "config" else f"; conf/{root}.yaml has those of this command"
        hint = f"python -m ppo_bench --cfg job prints all keys of a run{also}"
    return f"there is no key {key}; {hint}"


def _choices_with(key: str) -> list[str]:
    """The choices of a group that have a key, such as `backend=envpool` for `backend.num_threads`."""
    group, _, rest = key.partition(".")
    if group not in ("framework", "backend", "network", "algorithm", "tracker"):
        return []
    found = []
    for path in sorted((CONF / group).glob("*.yaml")):
        prefix = f"{path.stem}." if group == "tracker" else ""
        if rest.startswith(prefix) and rest.removeprefix(prefix) in OmegaConf.load(path):
            found.append(f"{group}={path.stem}")
    return found


def _known_keys(root: str, chosen: Sequence[str]) -> list[str]:
    """Keys of the configuration with the `chosen` groups, or with none where one of these is wrong, too."""

    def flatten(prefix: str, node: Any) -> list[str]:
        return [key for name, child in node.items() for key in [prefix + name, *_nested(prefix + name, child)]]

    def _nested(key: str, child: Any) -> list[str]:
        return flatten(f"{key}.", child) if isinstance(child, dict) else []

    try:
        composed = _compose(root, chosen)
    except Exception:
        composed = _compose(root, [])
    keys = flatten("", OmegaConf.to_container(composed))
    return [key for key in keys if not key.endswith(("._target_", ".name")) or key == "env.name"]
