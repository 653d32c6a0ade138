"""The program of a SLURM job: trainings one after the other, each in its own process.

submitit starts it, and again after a requeue; a training then resumes from its last checkpoint. On several nodes it is
started as several tasks, of which each runs one process of the training. Only the first records failures and requeues.

A job can lose its node in three ways. (1) submitit's signal (SIGUSR2: the time limit is near, or a preemption with a
warning): submitit requeues the job. (2) SIGTERM and a grace period: nobody else requeues it, so this module does.
(3) At once: SLURM requeues it, or, if a training on several nodes notices first, this module.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ppo_bench.common.cli import EXIT_CODES, LOST
from ppo_bench.common.errors import Interrupted
from ppo_bench.common.files import are_complete, read_json, write_json
from ppo_bench.sweeps.child import Failure, train_in_process
from ppo_bench.sweeps.slurm.ledger import (
    Place,
    failure_file,
    failure_file_of_rank,
    failure_files_of_ranks,
    log_file,
    log_file_of_rank,
)
from ppo_bench.sweeps.slurm.task import Task, granted_cores, this_task
from ppo_bench.tuning.cores import keep_to_cores

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

REQUEUE_IF_EARLY = "trap '[ $? -ne 140 ] || scontrol requeue $SLURM_JOB_ID' EXIT"
"""Line of a job's script: a SIGUSR2 before submitit handles it ends the step, and srun exits with 128 + 12."""


class SubmittedRun(NamedTuple):
    """A training: the folders of its runs, one unless a program trains several, and the command's overrides."""

    folders: list[str]
    overrides: list[str]

    @property
    def complete(self) -> bool:
        """Whether all its runs are complete."""
        return are_complete([Path(folder) for folder in self.folders])


@dataclass(frozen=True)
class TrainInTurn:
    """The trainings of a job. Raises `RuntimeError` at the end if any of them failed."""

    max_losses: int
    """Number of times that the job may have been queued again when it is, once more, because a node was lost."""

    def __call__(self, runs: Sequence[SubmittedRun]) -> None:
        """Train the runs that are neither complete nor failed in an earlier try of this job."""
        import submitit

        jobs, job, task = Path(os.environ["SUBMITIT_FOLDER"]), submitit.JobEnvironment().job_id, this_task()
        environment = task.environment
        if task.rank > 0:
            (run,) = runs
            _serve(run, task, jobs, job, environment)
            return
        stop_requests: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stop_requests.append(number))
        failures = [failure_file(jobs, Place(job, position)) for position in range(len(runs))]
        for position, (run, failure) in enumerate(zip(runs, failures, strict=True)):
            if run.complete or failure.exists():
                continue
            try:
                log = log_file(jobs, Place(job, position))
                with keep_to_cores(granted_cores(task)):
                    failed = None if stop_requests else train_in_process(run.overrides, stop_requests, log, environment)
            except subprocess.SubprocessError:  # from submitit, whose own attempt to requeue failed or took too long
                requeue()
            except Exception as error:  # from submitit: over the time limit too many times
                write_json(failure, {"reason": str(error)})
                raise
            # A run that receives a signal just after its end may still be killed.
            if stop_requests and not run.complete:
                requeue()
            if failed and not run.complete:
                write_json(failure, {"reason": self._reason(failed, task, jobs, job)})
        count = sum(failure.exists() for failure in failures)
        if count:
            raise RuntimeError(f"{count} of {len(runs)} runs failed")

    def _reason(self, failed: Failure, task: Task, jobs: Path, job: str) -> str:
        """The reason of a failure in one line. If it is another node that was lost or told to end, requeue the job."""
        if task.num_tasks == 1:
            return failed.reason
        if failed.code == EXIT_CODES[Interrupted]:
            time.sleep(SAYS_SECONDS)  # if the signal comes here too, submitit requeues the job
            requeue()
        is_consequence = failed.code in CONSEQUENCES
        said = said_by_others(jobs, job, task.restarts, SAYS_SECONDS if is_consequence else 0.0)
        if is_consequence and not said and task.restarts < self.max_losses:
            requeue()
        return said or failed.reason

    def checkpoint(self, runs: Sequence[SubmittedRun]) -> DelayedSubmission:
        """The same call again, since run folders hold the progress. submitit requeues because this method exists."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, runs)


def _serve(run: SubmittedRun, task: Task, jobs: Path, job: str, environment: Mapping[str, str]) -> None:
    """Run one of the other processes of a training on several nodes; if it fails, leave the reason in a file."""
    stop_requests: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_requests.append(number))
    if run.complete:
        return
    with keep_to_cores(granted_cores(task)):
        log = log_file_of_rank(jobs, job, task.rank)
        failed = train_in_process(run.overrides, stop_requests, log, environment)
    if failed and failed.code not in CONSEQUENCES and not stop_requests:
        reason = f"process {task.rank} of {task.num_tasks}, on {socket.gethostname()}: {failed.reason}; see {log}"
        write_json(failure_file_of_rank(jobs, job, task.rank, task.restarts), {"reason": reason})


CONSEQUENCES = (LOST, -signal.SIGABRT)
"""Exit codes of a rank that ends because another one has; JAX ends it by SIGABRT."""
SAYS_SECONDS = 10.0
"""Time for another task to write why its rank has failed. If its node is lost, nobody writes anything."""


def said_by_others(jobs: Path, job: str, restarts: int, seconds: float) -> str | None:
    """The reason that the first of the other tasks to fail has written in this try of the job.

    None if none has within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := failure_files_of_ranks(jobs, job, restarts)):
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.5)
    return str(read_json(min(found, key=lambda path: path.stat().st_mtime))["reason"])


REQUEUES_SECONDS = 60.0
"""Maximum time for repeated attempts to requeue a job: SLURM may be busy, or about to preempt the job itself."""


def requeue() -> NoReturn:
    """End this process, and requeue its job unless SLURM has already cancelled or requeued it."""
    job, deadline = os.environ["SLURM_JOB_ID"], time.monotonic() + REQUEUES_SECONDS
    while time.monotonic() < deadline and _is_running(job):
        if subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0:
            break
        time.sleep(2.0)
    raise SystemExit(1)


def _is_running(job: str) -> bool:
    shown = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, check=False)
    return shown.returncode != 0 or re.search(r"\bJobState=RUNNING\b", shown.stdout) is not None


def last_line(path: Path) -> str:
    """The last line of a log that is not empty; an empty string if there is none."""
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
