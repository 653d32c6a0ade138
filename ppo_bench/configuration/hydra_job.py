"""`hydra.run.dir`, the folder of a run, and the configuration of the job that Hydra runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import jsonable, read_json
from ppo_bench.configuration.compose import without_hydra
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import composed_config


def run_dir(*, _root_: DictConfig) -> str:
    """The folder of the run that the whole configuration `_root_` asks for. Raises `ConfigError` if it is wrong.

    Hydra calls it before it makes the folder, so that nothing is left of a wrong command.
    """
    if set(_root_) == {"hydra"}:  # --cfg hydra --resolve
        return "<the run's folder>"
    config = composed_config(without_hydra(_root_), _root_.hydra)
    config.require()
    return str(config.folders[0])


OmegaConf.register_new_resolver("run_dir", run_dir, replace=True)


def job_config(job: DictConfig) -> Config:
    """The checked configuration of the job that Hydra runs now. Raises `ConfigError`."""
    hydra: Any = HydraConfig.get()
    config = composed_config(job, hydra)
    config.require()
    folder = hydra.runtime.output_dir
    if hydra.mode == RunMode.MULTIRUN or folder == os.path.abspath(config.folders[0]):
        return config
    if config.trains_several:
        raise ConfigError(f"hydra.run.dir={folder}: num_seeds and grid train several runs; leave it out")
    run = Path(folder)
    if (run / "run.json").exists():
        there = read_json(run / "run.json")
        mine = {"identity": jsonable(config.identity), "seed": config.root.seed}
        if mine != {"identity": there.get("identity"), "seed": there["config"]["seed"]}:
            raise ConfigError(f"hydra.run.dir={folder}: another run is there; choose another folder")
    return replace(config, run_dir=run)
