"""Checks of whether the resources of a job (`launch`) fit the devices of its runs."""

from __future__ import annotations

from collections.abc import Sequence

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.sweeps.slurm.settings import Launch


def tasks_per_node(launch: Launch, configs: Sequence[Config]) -> int:
    """Number of tasks that a job starts on each of its nodes.

    On several nodes a task is a process of the training; on a single node one task starts the processes itself.
    Raises `ConfigError` with one line if the runs cannot be trained with these resources.
    """
    for config in configs:
        _require(launch, config)
    if launch.nodes == 1:
        return 1
    found = {_devices_per_node(launch, config) if config.framework.process_per_device else 1 for config in configs}
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


def _devices_per_node(launch: Launch, config: Config) -> int:
    return launch.devices_per_node or config.root.devices // launch.nodes


def _require(launch: Launch, config: Config) -> None:
    """Raise `ConfigError` if a run does not fit the nodes."""
    devices, nodes = config.root.devices, launch.nodes
    if nodes > 1 and launch.runs_per_job > 1:
        raise ConfigError(f"launch.runs_per_job={launch.runs_per_job}: a job of several nodes has one run; use 1")
    if devices % nodes:
        raise ConfigError(
            f"launch.nodes={nodes} does not divide devices={devices}: add devices={nodes} or a multiple, and "
            "ppo.shards that it divides"
        )
    each = _devices_per_node(launch, config)
    if each * nodes != devices:
        raise ConfigError(
            f"launch.nodes={nodes} with launch.devices_per_node={each} have {nodes * each} devices, and the run has "
            f"devices={devices}: they must be equal"
        )
    if launch.gpus and config.root.device != "cpu":
        if launch.gpus < each:
            raise ConfigError(f"launch.gpus={launch.gpus}: devices={devices} takes {each} GPUs of a node")
    elif config.root.device.startswith("cuda"):
        raise ConfigError(f"device={config.root.device} needs a GPU: use launch=gpu or launch.gpus={each}")
    elif launch.cpus < each:
        raise ConfigError(f"launch.cpus={launch.cpus}: devices={devices} takes {each} CPUs of a node, one for each")
