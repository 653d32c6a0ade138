"""State of jobs in SLURM: from `squeue` for recent jobs, and from `sacct` for older ones where there is accounting."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from ppo_bench.common.errors import ConfigError

# fmt: off
QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
          "SUSPENDED"}
RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"}
# fmt: on


class SlurmJob(NamedTuple):
    """A job's state in SLURM's terms, the reason for it, and the number of requeues."""

    state: str
    reason: str
    restarts: int


def jobs(ids: Iterable[str]) -> dict[str, SlurmJob] | None:
    """State of these jobs (`<array>_<task>` or `<job>`), without unknown ones; None on a machine without SLURM.

    Raises `ConfigError` if SLURM does not answer.
    """
    wanted = set(ids)
    if not wanted:
        return {}
    if not shutil.which("squeue"):
        return None
    arrays = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    # --array prints one line for each waiting task of an array. A `|` ends each field.
    fields = "JobArrayID:64|,State:32|,Reason:128|,RestartCnt:16|"
    squeue = _run("squeue", "--noheader", "--array", "--states=all", f"--jobs={arrays}", f"--Format={fields}")
    # For a single id that SLURM no longer knows, squeue fails with this message.
    if squeue.returncode != 0 and "Invalid job id" not in squeue.stderr:
        raise ConfigError(f"SLURM does not answer: {' '.join(squeue.stderr.split())}")
    found = {}
    for line in squeue.stdout.splitlines():
        job, state, reason, restarts = (field.strip() for field in line.split("|")[:4])
        found[job] = SlurmJob(state, reason, int(restarts or 0))
    if (wanted - found.keys()) and shutil.which("sacct"):
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={arrays}", "--format=JobID,State")
        for line in _run("sacct", *options).stdout.splitlines():  # empty without accounting
            job, state, *_ = line.split("|")
            found.setdefault(job, SlurmJob(state.split(" ")[0], "None", 0))  # "CANCELLED by 1000"
    return {job: found[job] for job in wanted & found.keys()}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
