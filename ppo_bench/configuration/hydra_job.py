"""The configuration of the job that Hydra runs, and `hydra.run.dir`, its run folder."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import jsonable, read_json
from ppo_bench.common.values import quoted
from ppo_bench.configuration.compose import is_a_sweep, key_of, search_path
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import checked


def run_dir(*, _root_: DictConfig) -> str:
    """The folder of the run that the whole configuration `_root_` asks for. Raises `ConfigError` if it is wrong.

    Hydra calls it before it makes the folder, so that nothing is left of a wrong command.
    """
    if set(_root_) == {"hydra"}:  # --cfg hydra --resolve
        return "<the run's folder>"
    return str(_config(without_hydra(_root_), _root_.hydra).folders[0])


def without_hydra(root: DictConfig) -> DictConfig:
    """The configuration of the job in one that has Hydra's as well."""
    job = copy(root)
    with open_dict(job):
        del job["hydra"]
    return job


OmegaConf.register_new_resolver("run_dir", run_dir, replace=True)
OmegaConf.register_new_resolver("expanduser", os.path.expanduser, replace=True)


def job_config(composed: DictConfig) -> Config:
    """The checked configuration of the job that Hydra runs now. Raises `ConfigError`."""
    hydra: Any = HydraConfig.get()
    config, given = _config(composed, hydra), OmegaConf.to_container(hydra.run)
    if hydra.mode == RunMode.MULTIRUN or given == {"dir": "${run_dir:}"}:  # else it would be resolved once more
        return config
    folder = hydra.run.dir
    if config.trains_several:
        raise ConfigError(f"hydra.run.dir={folder}: num_seeds and grid train several runs; leave it out")
    run = Path(hydra.runtime.output_dir) if hydra.job.chdir else Path(folder)
    if (run / "run.json").exists():
        there = read_json(run / "run.json")
        mine = {"identity": jsonable(config.identity), "seed": config.root.seed}
        if mine != {"identity": there.get("identity"), "seed": there["config"]["seed"]}:
            raise ConfigError(f"hydra.run.dir={folder}: another run is there; choose another folder")
    return replace(config, run_dir=run)


def config_dir(hydra: Any) -> str | None:
    """The absolute path of `--config-dir`; None without."""
    return next((one.path for one in hydra.runtime.config_sources if one.provider == "command-line"), None)


def _config(composed: DictConfig, hydra: Any) -> Config:
    overrides: Any = OmegaConf.to_container(hydra.overrides.task)  # without their interpolations
    given = {key_of(word) for word in overrides}
    if hydra.mode == RunMode.RUN and (swept := [key for key in hydra.sweeper.get("params") or () if key not in given]):
        raise is_a_sweep(swept)
    folder = config_dir(hydra)
    given_path: Any = OmegaConf.to_container(hydra.overrides.hydra)
    found = [f"hydra.searchpath=[{quoted(f'file://{folder}')}]"] if folder else search_path(given_path)
    config = checked(composed, overrides=(*found, *overrides))
    if hydra.job.chdir:  # relative paths are those of the folder that the command was given in
        root = config.root
        root.outputs = str(Path(hydra.runtime.cwd, root.outputs))
        if root.checkpoint.load:
            root.checkpoint.load = str(Path(hydra.runtime.cwd, root.checkpoint.load))
    config.require()
    return config
