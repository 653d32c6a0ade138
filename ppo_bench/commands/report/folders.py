"""Search for run folders, and reading of their run.json and result.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION
from ppo_bench.common.values import digest, env_of, younger_defaults
from ppo_bench.runs.results import EVALUATION_COLUMNS, run_folders

EXECUTION = ("framework", "backend", "precision", "device", "tuning")
"""Keys of an identity that do not change what is learned."""
PLAIN = {"_target_": "ppo_bench.algorithms.ppo.Ppo", "name": "ppo"}
"""The algorithm of older runs, whose identities name none."""
YOUNGER = younger_defaults(Hyperparameters)
"""Hyperparameters that identities do not have at these values."""
COUNTED = (
    *("iterations", "global_step", "loaded_steps", "episodes", "cut_episodes", "cut_steps"),
    *("resumes", "peak_memory_bytes"),
)
"""Whole numbers of result.json."""


class Unreadable(Exception):
    """The reason why a folder is left out of the report."""


@dataclass
class LeftOut:
    """A folder that is not in the report, and the reason."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"left out: {self.folder}: {self.reason}"


@dataclass
class Run:
    """A run as described by its files; values that they lack are None."""

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
    """`Atari`, or None."""
    setting: dict[str, Any]
    """Task and hyperparameters, with dotted keys."""
    execution: dict[str, Any]
    """Framework, backend, precision, device and tuning, with dotted keys."""
    facts: dict[str, Any]
    """Hardware, versions, precision flags, threads and commit, with dotted keys."""
    started: str
    iterations: int | None = None
    global_step: int | None = None
    episodes: int | None = None
    final_return_mean: float | None = None
    final_return_std: float | None = None
    recent_return_mean: float | None = None
    """Mean return of the last 100 episodes so far; in a finished run it equals `final_return_mean`."""
    wall_seconds: float | None = None
    setup_seconds: float | None = None
    compile_seconds: float | None = None
    steady_sps: float | None = None
    mean_sps: float | None = None
    """Environment steps divided by training time without compilation."""
    loaded_steps: int | None = None
    """Part of `global_step` that another run trained (`checkpoint.load`)."""
    cut_episodes: int | None = None
    cut_steps: int | None = None
    resumes: int | None = None
    """How many times the run was taken up again from a checkpoint."""
    masked_fraction: float | None = None
    peak_memory_bytes: int | None = None
    load_average: float | None = None
    """The machine's load average over the run's last minute; it includes the run itself."""
    measured: dict[str, float] = field(default_factory=dict)
    """Results of the last evaluation during training, and means of `env.info` over the last 100 episodes, by name."""
    path: Path = field(default_factory=Path)

    @property
    def cut_fraction(self) -> float | None:
        """Fraction of the steps that belong to episodes cut by restarts of the environments; None if not recorded."""
        own_steps = (self.global_step or 0) - (self.loaded_steps or 0)
        return None if self.cut_steps is None or not own_steps else self.cut_steps / own_steps

    @property
    def keys(self) -> dict[str, Any]:
        """What a report can compare by: framework, backend, options of the execution, task and hyperparameters."""
        return {"framework": self.framework, "backend": self.backend, **self.execution, **self.setting}

    @property
    def setting_key(self) -> str:
        """A digest of task and hyperparameters."""
        return digest({"env": self.env, **self.setting})

    @property
    def identity(self) -> tuple[Any, ...]:
        """A tuple that is equal for runs of the same experiment with the same seed."""
        task = self.env, self.env_id, self.backend, self.setting_key
        return *task, self.framework, digest(self.execution), self.seed


def find(folders: Sequence[str]) -> list[Path]:
    """The sorted run folders in or below `folders`, without duplicates. Raises `ConfigError` if one is missing."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"{folder} is not a folder: name one that outputs= named, or a run's")
        for run in run_folders(Path(folder)):
            found.setdefault(run.resolve(), run if run.name else run.resolve())  # "." has no name
    return [found[resolved] for resolved in sorted(found)]


def read(path: Path) -> Run:
    """A run from its run.json and result.json. Raises `Unreadable`."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Unreadable("its path is not UTF-8, which DuckDB needs") from error
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
    if result is not None:
        run.finished = True
        for key in ("final_return_mean", "final_return_std", "wall_seconds", "setup_seconds", "compile_seconds"):
            setattr(run, key, _number(result.get(key)))
        for key in ("steady_sps", "mean_sps", "masked_fraction", "load_average"):
            setattr(run, key, _number(result.get(key)))
        for key in COUNTED:
            count = _number(result.get(key))
            setattr(run, key, None if count is None else int(count))
        evaluated = {name.replace("_", " "): result.get(name) for name in EVALUATION_COLUMNS}
        told = evaluated | dict(result.get("info") or {})
        run.measured = {name: number for name, value in told.items() if (number := _number(value)) is not None}
        run.recent_return_mean = run.final_return_mean
    return run


def _run(path: Path, about: Mapping[str, Any], result: Mapping[str, Any]) -> Run:
    config = about["config"]
    backend, framework = config["backend"]["name"], config["framework"]["name"]
    trained = about["identity"]
    env, env_id = env_of(config)
    setting = {key: value for key, value in trained.items() if key not in EXECUTION}
    setting["ppo"] = YOUNGER | setting["ppo"]
    setting.setdefault("algorithm", PLAIN)
    setting["env"] = {key: value for key, value in trained["env"].items() if key not in ("name", "id", "num_envs")}
    batch = config["ppo"]["num_envs"] * config["ppo"]["num_steps"]
    setting["total_timesteps"] = config["total_timesteps"] // batch * batch  # as trained; an identity has a rounder one
    execution = {key: trained[key] for key in EXECUTION if key in trained}
    together = (result or about).get("num_seeds", config["num_seeds"])
    if together > 1:  # several runs in one program: the speed of each is the program's, divided by their number
        execution["runs_at_once"] = together
    facts = flat({key: about[key] for key in ("hardware", "versions", "execution", "git_commit")})
    facts |= flat({key: about.get(key, {}) for key in ("own_code", "variables")})
    if isinstance(device := facts.get("execution.device"), str):
        facts["execution.device"] = execution["device"] = device.removesuffix(":0")  # the actual device, not `auto`
    return Run(
        folder=str(path),
        name=str(config["name"]),
        env=str(env),
        env_id=str(env_id),
        backend=str(backend),
        framework=str(framework),
        seed=int(config["seed"]),
        finished=False,
        total_timesteps=int(config["total_timesteps"]),
        kind="Atari" if trained["env"]["atari"] else None,
        # Outside of `ppo`, a key that an older version did not have counts as an empty one.
        setting={k: v for k, v in flat(setting).items() if v not in (None, [], {}) or k.startswith("ppo.")},
        execution=flat(execution),
        facts=facts,
        started=about["started"],
        path=path,
    )


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A tree of mappings as one dictionary with dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{above}{key}.")
        else:
            leaves[f"{above}{key}"] = value
    return leaves


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None if the file is missing. Raises `Unreadable` if it is damaged."""
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
