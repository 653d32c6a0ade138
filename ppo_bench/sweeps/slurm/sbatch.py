"""Checks of whether jobs can be submitted from this machine, and errors of sbatch."""

from __future__ import annotations

import shutil

from ppo_bench.common.errors import ConfigError, require


def require_slurm() -> None:
    """Raise `ConfigError` if jobs cannot be submitted from this machine."""
    require("submitit", "slurm", "SLURM")
    require("hydra_plugins.hydra_submitit_launcher", "slurm", "SLURM")
    for program in ("sbatch", "srun"):
        if not shutil.which(program):
            raise ConfigError(f"SLURM needs {program}, which is not on this machine's PATH: submit from a login node")


def refusal(error: Exception) -> ConfigError:
    """The reason why sbatch rejects a job, as an error of one line."""
    lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines()]
    return ConfigError(f"SLURM does not take the job: {'; '.join(line for line in lines if line)}")
