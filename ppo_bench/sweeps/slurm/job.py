"""The program of a SLURM job: trainings one after the other, each in its own process.

submitit starts it, and again after a requeue; a training then resumes from its last checkpoint. A job can lose its node
in three ways. (1) submitit's signal (SIGUSR2: the time limit is near, or a preemption with a warning): submitit
requeues the job. (2) SIGTERM and a grace period: nobody else requeues it, so this module does. (3) At once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ppo_bench.common.files import write_json
from ppo_bench.sweeps.child import train_in_process
from ppo_bench.sweeps.slurm.ledger import Place, failure_file, log_file

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

REQUEUE_IF_EARLY = "trap '[ $? -ne 140 ] || scontrol requeue $SLURM_JOB_ID' EXIT"
"""Line of a job's script: a SIGUSR2 before submitit handles it ends the step, and srun exits with 128 + 12."""


class SubmittedRun(NamedTuple):
    """A run to train: its folder, and the overrides after `python -m ppo_bench`."""

    folder: str
    overrides: list[str]

    @property
    def complete(self) -> bool:
        """Whether the run is complete."""
        return (Path(self.folder) / "result.json").exists()


class TrainInTurn:
    """The trainings of a job. Raises `RuntimeError` at the end if any of them failed."""

    def __call__(self, runs: Sequence[SubmittedRun]) -> None:
        """Train the runs that are neither complete nor failed in an earlier try of this job."""
        import submitit

        jobs, job = Path(os.environ["SUBMITIT_FOLDER"]), submitit.JobEnvironment().job_id
        stop_requests: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stop_requests.append(number))
        failures = [failure_file(jobs, Place(job, position)) for position in range(len(runs))]
        for position, (run, failure) in enumerate(zip(runs, failures, strict=True)):
            if run.complete or failure.exists():
                continue
            try:
                log = log_file(jobs, Place(job, position))
                reason = None if stop_requests else train_in_process(run.overrides, stop_requests, log)
            except Exception as error:  # from submitit: over the time limit too many times
                write_json(failure, {"reason": str(error)})
                raise
            # A run that receives a signal just after its end may still be killed.
            if stop_requests and not run.complete:
                requeue()
            if reason and not run.complete:
                write_json(failure, {"reason": reason})
        failed = sum(failure.exists() for failure in failures)
        if failed:
            raise RuntimeError(f"{failed} of {len(runs)} runs failed")

    def checkpoint(self, runs: Sequence[SubmittedRun]) -> DelayedSubmission:
        """The same call again, since run folders hold the progress. submitit requeues because this method exists."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, runs)


def requeue() -> None:
    """End this process, and requeue its job unless SLURM has already cancelled or requeued it."""
    job = os.environ["SLURM_JOB_ID"]
    shown = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, check=True).stdout
    if re.search(r"\bJobState=RUNNING\b", shown):
        subprocess.run(["scontrol", "requeue", job], check=True)
    raise SystemExit(1)


def last_line(path: Path) -> str:
    """The last line of a log that is not empty; an empty string if there is none."""
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
