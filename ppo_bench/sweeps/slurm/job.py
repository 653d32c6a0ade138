"""The program of a SLURM job: a training in a process of its own.

submitit starts it, and again after a requeue; the training then resumes from its last checkpoint. On several nodes each
of several tasks runs one process of the training, and the first alone fails or requeues.

A job can lose its node in three ways. (1) submitit's signal (SIGUSR2: the time limit is near, or a preemption with a
warning): submitit requeues the job. (2) SIGTERM and a grace period, in which the training ends: nobody else requeues
the job then, so this module does. (3) At once: SLURM requeues it, or, if a training on several nodes notices first,
this module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from submitit import JobEnvironment, SlurmJob
from submitit.helpers import Checkpointable, TorchDistributedEnvironment

from ppo_bench.common.cli import EXIT_CODES, EXIT_RANK_LOST
from ppo_bench.common.errors import RunError, RunInterrupted
from ppo_bench.common.files import are_complete
from ppo_bench.common.rank_info import OWN_CORES
from ppo_bench.sweeps.child import Failure, train_in_process
from ppo_bench.sweeps.slurm.commands import requeue

JOB = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
REQUEUE_IF_EARLY = f"trap '[ $? -ne 140 ] || scontrol requeue {JOB}' EXIT"
"""Line of a job's script: a SIGUSR2 before submitit handles it ends the step, and srun exits with 128 + 12."""
STOPPED = (EXIT_CODES[RunInterrupted], -signal.SIGTERM)
"""Exit codes of a training that was told to end, perhaps before it could heed it."""
CONSEQUENCES = (EXIT_RANK_LOST, -signal.SIGABRT)
"""Exit codes of a rank that ends because another one has; JAX ends it by SIGABRT."""
SAYS_SECONDS = 10.0
"""Time for another task to say why its rank has failed. If its node is lost, nobody says anything."""


class Training(Checkpointable):
    """The function of a job. submitit requeues its jobs because it is checkpointable."""

    def __init__(self, max_losses: int) -> None:
        """`max_losses`: how often the job may have been queued again when it is, once more, because a node was lost."""
        self.max_losses = max_losses

    def __call__(self, folders: Sequence[str], overrides: Sequence[str]) -> str | None:
        """Train the run, or the runs of a program of several, in `folders`, unless they are complete.

        Returns the reason why the process of another task than the first has failed, None if it has not. Raises
        `RunError` with one line if the run has.
        """
        task = JobEnvironment()
        task.paths.result_pickle.unlink(missing_ok=True)  # of an earlier try
        if are_complete([Path(folder) for folder in folders]):
            return None
        if task.num_tasks > 1:
            TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
            # Names of nodes need not resolve.
            os.environ |= {"MASTER_ADDR": os.environ["SLURM_LAUNCH_NODE_IPADDR"], OWN_CORES: "1"}
        try:
            failure = train_in_process(overrides, [])
        except subprocess.SubprocessError:  # from submitit, whose own attempt to requeue failed or took too long
            requeue()
        if failure is None or are_complete([Path(folder) for folder in folders]):
            return None
        if task.global_rank == 0:
            raise RunError(self._reason(failure, task))
        if failure.code in STOPPED + CONSEQUENCES:
            return None
        where = f"process {task.global_rank} of {task.num_tasks}, on {task.hostname}"
        return f"{where}: {failure.reason}; see {task.paths.stdout}"

    def _reason(self, failure: Failure, task: JobEnvironment) -> str:
        """The reason of a failure in one line. If the job was told to end, or lost a node, requeue it."""
        several = task.num_tasks > 1
        if failure.code in STOPPED:
            if several:
                time.sleep(SAYS_SECONDS)  # if the signal comes here too, submitit requeues the job
            requeue()
        is_consequence = several and failure.code in CONSEQUENCES
        said = said_by_others(task, SAYS_SECONDS if is_consequence else 0.0)
        if is_consequence and not said and int(os.environ.get("SLURM_RESTART_COUNT", "0")) < self.max_losses:
            requeue()
        return said or failure.reason


def said_by_others(task: JobEnvironment, seconds: float) -> str | None:
    """The reason that the first of the other tasks to fail has returned; None if none has within `seconds`."""
    others: list[SlurmJob[str | None]] = [
        SlurmJob(task.paths.folder, task.job_id, tasks=[rank]) for rank in range(1, task.num_tasks)
    ]
    deadline = time.monotonic() + seconds
    while True:
        ended = [job for job in others if job.paths.result_pickle.exists()]
        ended.sort(key=lambda job: job.paths.result_pickle.stat().st_mtime)
        if said := next((reason for job in ended if (reason := job.result())), None):
            return str(said)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.5)
