"""A task of a SLURM job: its rank in a training, and the cores that SLURM has granted it."""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

from ppo_bench.common.launched import OWN_CORES
from ppo_bench.tuning.cores import cores_of_process

PORTS = range(10_000, 32_000)
"""Ports at which rank 0 may listen: outside of the range from which Linux takes ports for outgoing connections."""


class Task(NamedTuple):
    """One of the tasks that srun has started on the nodes of a job."""

    rank: int
    num_tasks: int
    local_rank: int
    """Index of the task on its node."""
    tasks_of_node: int
    """Number of tasks on each node."""
    restarts: int
    """Number of times that SLURM has queued the job again."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the task's training, as `ppo_bench.common.launched.launched` reads them."""
        if self.num_tasks == 1:
            return dict(os.environ)
        job = int(os.environ["SLURM_JOB_ID"])
        told = {
            "RANK": self.rank,
            "WORLD_SIZE": self.num_tasks,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.tasks_of_node,
            "MASTER_ADDR": os.environ["SLURM_LAUNCH_NODE_IPADDR"],
            "MASTER_PORT": os.environ.get("MASTER_PORT", PORTS[job % len(PORTS)]),
            OWN_CORES: 1,
        }
        return dict(os.environ) | {name: str(value) for name, value in told.items()}


def this_task() -> Task:
    """The task that this process is."""
    told = os.environ.get
    num_tasks, nodes = int(told("SLURM_STEP_NUM_TASKS", "1")), int(told("SLURM_STEP_NUM_NODES", "1"))
    rank, local_rank = int(told("SLURM_PROCID", "0")), int(told("SLURM_LOCALID", "0"))
    return Task(rank, num_tasks, local_rank, num_tasks // nodes, int(told("SLURM_RESTART_COUNT", "0")))


def granted_cores(task: Task) -> list[int]:
    """The cores that SLURM has granted to the task, also on clusters that do not keep tasks to them.

    If that cannot be found out, all cores that this process may use.
    """
    here, each = cores_of_process(), int(os.environ.get("SLURM_CPUS_PER_TASK", "0"))
    if not each or len(here) <= each:
        return here
    own = [core for core in _cores_of_job() if core in here][task.local_rank * each :][:each]
    return own if len(own) == each else here


def _cores_of_job() -> list[int]:
    """The cores of this node that SLURM has allocated to the job; empty if it does not say."""
    for nodes, cores in re.findall(r"\bNodes=(\S+) CPU_IDs=(\S+)", _scontrol("job", "-d", os.environ["SLURM_JOB_ID"])):
        if os.environ.get("SLURMD_NODENAME") in _scontrol("hostnames", nodes).split():
            ranges = (part.partition("-") for part in cores.split(","))
            return [core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)]
    return []


def _scontrol(*what: str) -> str:
    try:
        return subprocess.run(["scontrol", "show", *what], capture_output=True, text=True, check=False).stdout
    except OSError:  # there is none on this node
        return ""
