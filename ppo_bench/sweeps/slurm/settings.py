"""Resources and options of a SLURM job: the keys of `launch`, explained in conf/launch/cpu.yaml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.compose import compose_root, key_of, to_schema
from ppo_bench.configuration.schema import with_free_keys


@dataclass
class Launch:
    """`launch`; see conf/launch/cpu.yaml."""

    partition: str | None
    nodes: int
    devices_per_node: int | None
    gpus: int
    cpus: int
    memory_gb: float
    time_minutes: int
    max_timeouts: int
    signal_seconds: int
    runs_per_job: int
    array_parallelism: int
    setup: list[str]
    sbatch: dict[str, Any]


ConfigStore.instance().store("Launch", with_free_keys(Launch, "sbatch"))


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of `launch`, and the overrides of the runs."""
    ours = [override for override in overrides if key_of(override).split(".")[0] == "launch"]
    return ours, [override for override in overrides if override not in ours]


def load_launch(overrides: Sequence[str]) -> Launch:
    """The checked settings from `launch=<name>` and `launch.<key>=<value>`. Raises `ConfigError` with one line."""
    launch: Launch = to_schema(compose_root("slurm", overrides).launch)
    for key, least in LEAST.items():
        if getattr(launch, key) is not None and getattr(launch, key) < least:
            raise ConfigError(f"launch.{key}={getattr(launch, key)}: must be at least {least}")
    if 60 * launch.time_minutes <= launch.signal_seconds + EARLY_SECONDS:
        raise ConfigError(
            f"launch.time_minutes={launch.time_minutes}: must be over launch.signal_seconds={launch.signal_seconds} "
            "and a minute more, by which SLURM may be early; else every try would be told to end as it begins"
        )
    if not 1 / 1024 <= launch.memory_gb < math.inf:  # SLURM has whole megabytes, of which 0 are all of the node's
        raise ConfigError(f"launch.memory_gb={launch.memory_gb}: must be a number of at least 0.001")
    return launch


EARLY_SECONDS = 60
"""Maximum time by which SLURM may send the signal too early, in seconds."""
LEAST = {
    "nodes": 1,
    "devices_per_node": 1,
    "gpus": 0,
    "cpus": 1,
    "time_minutes": 1,
    "max_timeouts": 0,
    "signal_seconds": 1,
    "runs_per_job": 1,
    "array_parallelism": 1,
}
