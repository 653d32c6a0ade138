"""Which folders are runs, and what their run.json and result.json say."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION
from ppo_bench.configuration.identity import NOT_TRAINED, env_of, identity
from ppo_bench.runs.results import EVALUATION_COLUMNS, RATINGS

FILES = ("run.json", "result.json", "metrics.jsonl", "episodes.jsonl")
"""A folder with any of them is a run's."""
EXECUTION = ("framework", "backend", "precision", "device", "tuning")
NO_SETTING = frozenset((*NOT_TRAINED, *EXECUTION))
"""Keys of a configuration that do not change what is learned: where it goes, and how it is executed."""


class Unreadable(Exception):
    """Why a folder is left out of the report."""


@dataclass
class Run:
    """A run as its files tell it; null where they do not."""

    folder: str
    name: str
    env: str
    env_id: str
    backend: str
    framework: str
    seed: int
    finished: bool
    total_timesteps: int
    kind: str | None
    """`Atari`, or nothing."""
    setting: dict[str, Any]
    """What is learned and with which hyperparameters: flat keys and values."""
    execution: dict[str, Any]
    """How it was executed: the flat keys of framework, backend, precision and device."""
    facts: dict[str, Any]
    """Hardware, versions, precision flags, threads and commit, flat."""
    started: str | None
    iterations: int | None = None
    global_step: int | None = None
    episodes: int | None = None
    final_return_mean: float | None = None
    final_return_std: float | None = None
    recent_return_mean: float | None = None
    """Of the last 100 episodes so far; of a finished run the same as `final_return_mean`."""
    wall_seconds: float | None = None
    setup_seconds: float | None = None
    compile_seconds: float | None = None
    steady_sps: float | None = None
    mean_sps: float | None = None
    """Environment steps over training time less compilation."""
    cut_episodes: int | None = None
    cut_steps: int | None = None
    masked_fraction: float | None = None
    peak_memory_bytes: int | None = None
    ratings: dict[str, list[float]] = field(default_factory=dict)
    """Of a game's checkpoints, by iteration; see ppo_bench/runs/rating.py."""
    load_average: float | None = None
    """Processes that ran or waited for a core of the machine in the run's last minute, its own included."""
    measured: dict[str, float] = field(default_factory=dict)
    """The last evaluation while it was trained, and means of `env.info` over its last 100 episodes, by their names."""
    path: Path = field(default_factory=Path)

    @property
    def cut_fraction(self) -> float | None:
        """Part of the steps whose episodes restarts of the environments cut; None where it was not counted."""
        return None if self.cut_steps is None or not self.global_step else self.cut_steps / self.global_step

    @property
    def setting_key(self) -> str:
        """Runs with the same key learn the same task with the same hyperparameters."""
        return digest({"env": self.env, **self.setting})

    @property
    def identity(self) -> tuple[Any, ...]:
        """Two runs with the same identity are the same experiment with the same seed."""
        return self.env, self.backend, self.framework, self.setting_key, digest(self.execution), self.seed


def digest(value: Any) -> str:
    """Eight characters that stand for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def find(folders: Sequence[str]) -> list[Path]:
    """Every run folder in or below `folders`, once, in order. Raises `ConfigError` if one of those is not there."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"{folder} is not a folder: name one that outputs= named, or a run's")
        for run in _below(Path(folder)):
            found.setdefault(run.resolve(), run if run.name else run.resolve())  # "." names no file as it is written
    return [found[resolved] for resolved in sorted(found)]


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        if any(name in files for name in FILES):
            folders.clear()  # what a run keeps is no run
            yield Path(where)
        else:
            folders[:] = [name for name in folders if not name.startswith(".")]


def read(path: Path) -> Run:
    """A run from its run.json and result.json. Raises `Unreadable`."""
    about = _json(path / "run.json")
    if about is None:
        raise Unreadable("run.json is missing")
    result = _json(path / "result.json")
    for name, value in (("run.json", about), ("result.json", result or {"schema_version": SCHEMA_VERSION})):
        if (version := value.get("schema_version")) != SCHEMA_VERSION:
            raise Unreadable(f"{name} has schema_version {version}; {SCHEMA_VERSION} can be read")
    try:
        run = _run(path, about, result or {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"run.json does not describe a run ({type(error).__name__}: {error})") from error
    run.ratings = _json(path / RATINGS) or {}
    if result is not None:
        run.finished = True
        for key in ("final_return_mean", "final_return_std", "wall_seconds", "setup_seconds", "compile_seconds"):
            setattr(run, key, _number(result.get(key)))
        for key in ("steady_sps", "mean_sps", "masked_fraction", "load_average"):
            setattr(run, key, _number(result.get(key)))
        for key in ("iterations", "global_step", "episodes", "cut_episodes", "cut_steps", "peak_memory_bytes"):
            count = _number(result.get(key))
            setattr(run, key, None if count is None else int(count))
        evaluated = {name.replace("_", " "): result.get(name) for name in EVALUATION_COLUMNS}
        told = evaluated | dict(result.get("info") or {})
        run.measured = {name: number for name, value in told.items() if (number := _number(value)) is not None}
        run.recent_return_mean = run.final_return_mean
        if run.mean_sps is None and run.global_step and run.wall_seconds:  # older runs did not write it
            training = run.wall_seconds - (run.compile_seconds or 0.0)
            run.mean_sps = (run.global_step - (_number(result.get("loaded_steps")) or 0.0)) / training
    return run


def _run(path: Path, about: Mapping[str, Any], result: Mapping[str, Any]) -> Run:
    config = about["config"]
    backend, framework = config["backend"]["name"], config["framework"]["name"]
    # Older runs did not write it down.
    trained = about.get("identity") or identity(config, (about.get("loaded") or {}).get("arrays_sha256"))
    env, env_id = env_of(config)
    setting = {key: value for key, value in trained.items() if key not in NO_SETTING}
    setting["env"] = {key: value for key, value in trained["env"].items() if key not in ("name", "id", "num_envs")}
    execution = {key: trained[key] for key in EXECUTION if key in trained}
    together = result.get("num_seeds", config.get("num_seeds", 1))
    if together > 1:  # each is as fast as they are together, divided among them
        execution["num_seeds"] = together
    recorded = {key: about.get(key) or {} for key in ("hardware", "versions", "execution")}
    facts = flat({**recorded, "git_commit": about.get("git_commit")})
    if isinstance(device := facts.get("execution.device"), str):
        facts["execution.device"] = execution["device"] = device.removesuffix(":0")  # not the `auto` that was asked for
    return Run(
        folder=str(path),
        name=str(config.get("name", "default")),
        env=str(env),
        env_id=str(env_id),
        backend=str(backend),
        framework=str(framework),
        seed=int(config["seed"]),
        finished=False,
        total_timesteps=int(config["total_timesteps"]),
        kind="Atari" if trained["env"]["atari"] else None,
        # A key that an older version did not have is as good as an empty one.
        setting={key: value for key, value in flat(setting).items() if value not in (None, [], {})},
        execution=flat(execution),
        facts=facts,
        started=about.get("started"),
        path=path,
    )


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A tree of mappings as one, with dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{above}{key}.")
        else:
            leaves[f"{above}{key}"] = value
    return leaves


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None if there is no file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path.name} is damaged ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise Unreadable(f"{path.name} is damaged (not an object)")
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
