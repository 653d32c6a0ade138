"""Search for run folders, and reading of their run.json and result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, is_complete, read_json
from ppo_bench.common.values import added_field_defaults, digest, env_name_and_id
from ppo_bench.runs.results import EVALUATION_COLUMNS, run_folders

EXECUTION = ("framework", "backend", "precision", "device", "tuning")
"""Keys of an identity that do not change what is learned."""


@dataclass(kw_only=True)
class Run:
    """A run as described by its files. Fields whose default is None come from result.json."""

    folder: str
    name: str
    env: str
    env_id: str
    backend: str
    framework: str
    seed: int
    finished: bool
    total_timesteps: int
    iterations: int | None = None
    global_step: int | None = None
    loaded_steps: int | None = None
    """Part of `global_step` that another run trained (`checkpoint.load`)."""
    episodes: int | None = None
    final_return_mean: float | None = None
    final_return_std: float | None = None
    recent_return_mean: float | None = None
    """Mean return of the last 100 episodes so far; in a finished run it equals `final_return_mean`."""
    wall_seconds: float | None = None
    setup_seconds: float | None = None
    compile_seconds: float | None = None
    recompile_seconds: dict[str, float] | None = None
    """Part of it by the iteration after which the run was resumed."""
    steady_sps: float | None = None
    mean_sps: float | None = None
    """Environment steps divided by training time without compilation."""
    masked_fraction: float | None = None
    resumes: int | None = None
    """Number of resumptions from a checkpoint that went on to another."""
    peak_memory_bytes: int | None = None
    load_average: float | None = None
    """The machine's load average over the run's last minute; it includes the run itself."""
    started: str
    device: str
    precision: str
    cpu: str
    gpu: str | None
    cores: int
    setting: dict[str, Any]
    """Task and hyperparameters, with dotted keys."""
    execution: dict[str, Any]
    """Framework, backend, precision, device and tuning, with dotted keys."""
    facts: dict[str, Any]
    """Hardware, versions, precision flags, threads, commit, and what speeds depend on, with dotted keys."""
    measured: dict[str, float] = field(default_factory=dict)
    """Results of the last evaluation during training, and means of `env.info` over the last 100 episodes, by name."""

    @property
    def path(self) -> Path:
        """The run's folder."""
        return Path(self.folder)

    @property
    def keys(self) -> dict[str, Any]:
        """What a report can compare by: framework, backend, options of the execution, task and hyperparameters."""
        return {"framework": self.framework, "backend": self.backend, **self.execution, **self.setting}

    @property
    def identity(self) -> tuple[Any, ...]:
        """A tuple that is equal for runs of the same experiment with the same seed."""
        return self.env, self.env_id, digest(self.keys), self.seed


def find(folders: Sequence[str]) -> list[Path]:
    """The sorted run folders in or below `folders`, each once. Raises `ConfigError` if one is missing."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"{folder} is not a folder: name one that outputs= named, or a run's")
    tops = [Path(folder) if Path(folder).name else Path(folder).resolve() for folder in folders]  # "." has no name
    return sorted({run for top in tops for run in run_folders(top)})


def read(path: Path) -> Run:
    """A run from its run.json and result.json. Raises `ConfigError`."""
    about = read_json(path / "run.json")
    result: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    if is_complete(path):
        result = read_json(path / "result.json")
    for name, content in (("run.json", about), ("result.json", result)):
        if (version := content.get("schema_version")) != SCHEMA_VERSION:
            raise ConfigError(f"{name} has schema_version {version}; {SCHEMA_VERSION} can be read")
    try:
        return _run(path, about, result)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:  # of keys or values
        raise ConfigError(f"run.json does not describe a run: {type(error).__name__} {error}") from error


def _run(path: Path, about: Mapping[str, Any], result: Mapping[str, Any]) -> Run:
    config, trained = about["config"], about["identity"]
    env, env_id = env_name_and_id(config)
    setting = {key: value for key, value in trained.items() if key not in EXECUTION}
    setting["ppo"] = added_field_defaults(Hyperparameters) | setting["ppo"]
    setting["env"] = {key: value for key, value in trained["env"].items() if key not in ("name", "id", "num_envs")}
    execution = {key: trained[key] for key in EXECUTION if key in trained}
    together = result.get("num_seeds", about.get("num_seeds", config["num_seeds"]))
    if together > 1:  # a run's speed is the program's, divided by the number of runs
        execution["runs_at_once"] = together
    facts = flat({key: about[key] for key in ("hardware", "versions", "execution", "git_commit")})
    facts |= flat({key: about.get(key, {}) for key in ("own_code", "variables")})
    facts |= flat({"backend": config["backend"]["name"], "tuning": trained.get("tuning", {}), "runs_at_once": together})
    device = facts["execution.device"].removesuffix(":0")  # the actual device, not `auto`
    facts["execution.device"] = execution["device"] = device
    recorded: dict[str, Any] = {each.name: result.get(each.name) for each in fields(Run) if each.default is None}
    recorded["recent_return_mean"] = recorded["final_return_mean"]
    measured = {name: result.get(name) for name in EVALUATION_COLUMNS} | (result.get("info") or {})
    return Run(
        folder=str(path),
        name=config["name"],
        env=env,
        env_id=env_id,
        backend=config["backend"]["name"],
        framework=config["framework"]["name"],
        seed=config["seed"],
        finished="status" in result,
        total_timesteps=config["total_timesteps"],
        started=about["started"],
        device=device,
        precision=trained["precision"],
        cpu=facts["hardware.cpu"],
        gpu=facts.get("execution.gpu") or facts.get("hardware.gpu"),  # the latter is the machine's first GPU
        cores=facts["hardware.cores"],
        # Without empty values, runs of versions that lack the key compare equal.
        setting={k: v for k, v in flat(setting).items() if v not in (None, [], {}) or k.startswith("ppo.")},
        execution=flat(execution),
        facts=facts,
        measured={name: value for name, value in measured.items() if value is not None},
        **recorded,
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
