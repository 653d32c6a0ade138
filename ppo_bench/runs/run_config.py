"""Configuration of a recorded run, for playing its policy again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, read_json
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import recorded_config
from ppo_bench.runners.checkpoint import CONFIG, is_exported


def read_run(run_folder: Path) -> dict[str, Any]:
    """Contents of run.json in a run folder or an exported one: versions, hardware, `config`. Raises `ConfigError`."""
    path = run_folder / (CONFIG if is_exported(run_folder) else "run.json")
    if not path.exists():
        raise ConfigError(f"{run_folder} has no run.json: name a run folder or one of its checkpoints/iteration_<k>")
    run = read_json(path, "name another run")
    if run.get("schema_version") != SCHEMA_VERSION or not isinstance(run.get("config"), dict):
        raise ConfigError(f"{path} is not the record of a run by this ppo_bench (schema version {SCHEMA_VERSION})")
    try:
        recorded_config(run["config"], {})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return run


def load_run(run_folder: Path, changes: Mapping[str, Any]) -> Config:
    """The configuration of a run with `changes` by key, of which None values are ignored. Raises `ConfigError`."""
    run = read_run(run_folder)
    made = {key: value for key, value in changes.items() if value is not None}
    config = recorded_config(run["config"], made)
    config.framework.require()
    config.require_backend()
    return config
