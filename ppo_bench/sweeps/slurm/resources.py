"""Resources of a SLURM job, the keys of `launch` (conf/launch/cpu.yaml), and whether they fit the devices of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import AT_LEAST_1, NOT_NEGATIVE, check_ranges, within
from ppo_bench.configuration.compose import compose_root, key_of
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import to_schema, values_of
from ppo_bench.configuration.schema import with_free_keys

EARLY_SECONDS = 60
"""SLURM may send the signal up to this many seconds before `signal_seconds`."""
# SLURM has whole megabytes, of which 0 are all of the node's.
MEMORY = within(lambda value: 1 / 1024 <= value < math.inf, "must be a number of at least 0.001")


@dataclass
class Launch:
    """`launch`; see conf/launch/cpu.yaml."""

    partition: str | None
    nodes: int = field(metadata=AT_LEAST_1)
    gpus: int = field(metadata=NOT_NEGATIVE)
    cpus: int = field(metadata=AT_LEAST_1)
    memory_gb: float = field(metadata=MEMORY)
    time_minutes: int = field(metadata=AT_LEAST_1)
    max_timeouts: int = field(metadata=NOT_NEGATIVE)
    signal_seconds: int = field(metadata=AT_LEAST_1)
    array_parallelism: int = field(metadata=AT_LEAST_1)
    setup: list[str]
    sbatch: dict[str, Any]


ConfigStore.instance().store("Launch", with_free_keys(Launch, "sbatch"))


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of `launch`, and the overrides of the runs."""
    ours = [override for override in overrides if key_of(override).split(".")[0] == "launch"]
    return ours, [override for override in overrides if override not in ours]


def load_launch(overrides: Sequence[str]) -> Launch:
    """The checked settings from `launch=<name>` and `launch.<key>=<value>`. Raises `ConfigError` with one line."""
    launch: Launch = to_schema(values_of(compose_root("slurm", overrides).launch), Launch)
    check_ranges(launch, "launch.")
    if 60 * launch.time_minutes <= launch.signal_seconds + EARLY_SECONDS:
        raise ConfigError(
            f"launch.time_minutes={launch.time_minutes}: must be over launch.signal_seconds={launch.signal_seconds} "
            "and a minute more, by which SLURM may be early; else every try would be told to end as it begins"
        )
    return launch


def tasks_per_node(launch: Launch, configs: Sequence[Config]) -> int:
    """Number of tasks that a job starts on each of its nodes.

    On several nodes a task is a process of the training; on a single node one task starts the processes itself.
    Raises `ConfigError` with one line if the runs cannot be trained with these resources.
    """
    for config in configs:
        _require(launch, config)
    if launch.nodes == 1:
        return 1
    found = {config.processes // launch.nodes if config.framework.process_per_device else 1 for config in configs}
    if len(found) > 1:
        names = ", ".join(sorted({config.framework.name for config in configs}))
        raise ConfigError(
            f"launch.nodes={launch.nodes}: these runs ({names}) need different numbers of tasks on a node: submit each "
            "framework by itself"
        )
    (tasks,) = found
    if launch.cpus % tasks:
        raise ConfigError(f"launch.cpus={launch.cpus}: the {tasks} tasks of a node divide them: choose a multiple")
    return tasks


def _require(launch: Launch, config: Config) -> None:
    """Raise `ConfigError` if a run does not fit the nodes."""
    devices, nodes = config.root.devices, launch.nodes
    if devices % nodes:
        raise ConfigError(
            f"launch.nodes={nodes} does not divide devices={devices}: add devices={nodes} or a multiple, and "
            "ppo.shards that it divides"
        )
    each = devices // nodes
    if launch.gpus and config.root.device != "cpu":
        if launch.gpus < each:
            raise ConfigError(f"launch.gpus={launch.gpus}: devices={devices} takes {each} GPUs of a node")
    elif config.root.device.startswith("cuda"):
        raise ConfigError(f"device={config.root.device} needs a GPU: use launch=gpu or launch.gpus={each}")
    elif launch.cpus < each:
        raise ConfigError(f"launch.cpus={launch.cpus}: devices={devices} takes {each} CPUs of a node, one for each")
