"""The commands of SLURM: which are on this machine, what sbatch rejects, which jobs are active, a job's own requeue."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from ppo_bench.common.errors import ConfigError, require


def require_slurm() -> None:
    """Raise `ConfigError` if jobs cannot be submitted from this machine."""
    require("submitit", "slurm", "SLURM")
    for program in ("sbatch", "srun"):
        if not shutil.which(program):
            raise ConfigError(f"SLURM needs {program}, which is not on this machine's PATH: submit from a login node")


def refusal(error: Exception) -> ConfigError:
    """The reason why sbatch rejects a job, as an error of one line."""
    lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines()]
    return ConfigError(f"SLURM does not take the job: {'; '.join(line for line in lines if line)}")


class ActiveJob(NamedTuple):
    """A job that is queued or running."""

    runs: bool
    reason: str
    """SLURM's reason why it is queued."""
    requeues: int


def active_jobs(ids: Iterable[str]) -> dict[str, ActiveJob] | None:
    """Those of the jobs (`<array>_<task>` or `<job>`) that have not ended; None on a machine without SLURM.

    submitit asks sacct, which knows nothing without accounting and not why a job is queued. Raises `ConfigError` if
    SLURM does not answer.
    """
    if not shutil.which("squeue"):
        return None
    if not (arrays := {job.partition("_")[0] for job in ids}):
        return {}
    # --array prints one line for each queued task of an array. A `|` ends each field.
    fields = "JobArrayID:64|,State:32|,Reason:128|,RestartCnt:16|"
    squeue = _run("squeue", "--noheader", "--array", f"--jobs={','.join(sorted(arrays))}", f"--Format={fields}")
    # For a single id that SLURM no longer knows, squeue fails with this message.
    if squeue.returncode != 0 and "Invalid job id" not in squeue.stderr:
        raise ConfigError(f"SLURM does not answer: {' '.join(squeue.stderr.split())}")
    found = {}
    for line in squeue.stdout.splitlines():
        job, state, reason, restarts = (field.strip() for field in line.split("|")[:4])
        found[job] = ActiveJob(state in ("RUNNING", "COMPLETING"), reason, int(restarts or 0))
    return found


REQUEUES_SECONDS = 60.0
"""Maximum time for repeated attempts to requeue a job: SLURM may be busy, or about to preempt the job itself."""


def requeue() -> NoReturn:
    """End this process, and requeue its job unless SLURM has already cancelled or requeued it."""
    job, deadline = os.environ["SLURM_JOB_ID"], time.monotonic() + REQUEUES_SECONDS
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):  # the id of one of its jobs is that of the whole array, too
        job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    while time.monotonic() < deadline and _is_running(job):
        if subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0:
            break
        time.sleep(2.0)
    raise SystemExit(1)


def _is_running(job: str) -> bool:
    shown = _run("scontrol", "show", "job", "-o", job)
    return shown.returncode != 0 or re.search(r"\bJobState=RUNNING\b", shown.stdout) is not None


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
