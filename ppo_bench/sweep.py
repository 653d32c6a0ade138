"""Several runs by one command: Hydra expands and launches them, each in a process of its own.

Thread counts, compile caches and GPU memory therefore do not leak from one run into the next.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from ppo_bench.config import CONF, load_config
from ppo_bench.errors import ConfigError
from ppo_bench.progress import say


def sweep(overrides: Sequence[str]) -> int:
    """Run every job of a sweep; 1 if any failed. Raises `ConfigError` for the first that is misconfigured."""
    jobs = expand(overrides)
    configs = [load_config(job) for job in jobs]
    for config in configs:
        config.framework.require()
    hydra_command(["--multirun", *overrides])
    failed = [
        " ".join(job)
        for job, config in zip(jobs, configs, strict=True)
        if not (config.run_folder / "result.json").exists()
    ]
    say(f"{len(jobs) - len(failed)} of {len(jobs)} runs are done")
    for job in failed:
        say(f"not done: {job}")
    return 1 if failed else 0


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: the product of all that are lists (`a,b`), ranges or globs."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        alternatives = [
            [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if override.is_sweep_override()
            else [override.input_line or ""]
            for override in parsed
        ]
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error
    return [list(job) for job in itertools.product(*alternatives)]


def hydra_command(arguments: Sequence[str]) -> int:
    """Hydra's own command line: sweeps, `--cfg`, `--info`, `--config-dir` and the rest."""
    before = sys.argv
    sys.argv = ["ppo_bench", *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(_job)()
    finally:
        sys.argv = before
    return 0


def _job(_: DictConfig) -> None:
    """One job of a sweep. A failed one has said why on stderr; it does not stop the others."""
    overrides = list(HydraConfig.get().overrides.task)
    command = [sys.executable, "-m", "ppo_bench", *overrides]
    if (code := subprocess.run(command, check=False).returncode) != 0:
        say(f"failed with exit code {code}: {' '.join(overrides)}")
