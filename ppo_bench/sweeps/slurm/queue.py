"""What SLURM says of jobs: `squeue` for those that it remembers, `sacct` for older ones where there is accounting."""

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
    """A job's state in SLURM's words, why it is in it, and how often it was queued again."""

    state: str
    reason: str
    restarts: int


def jobs(ids: Iterable[str]) -> dict[str, SlurmJob] | None:
    """What is known of these jobs (`<array>_<task>` or `<job>`); None where there is no SLURM to ask.

    Raises `ConfigError` if SLURM does not answer.
    """
    wanted = set(ids)
    if not wanted:
        return {}
    if not shutil.which("squeue"):
        return None
    arrays = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    # -r: a line for each task of an array that waits. A `|` ends each field.
    fields = "JobArrayID:64|,State:32|,Reason:128|,RestartCnt:16|"
    squeue = _run("squeue", "--noheader", "--array", "--states=all", f"--jobs={arrays}", f"--Format={fields}")
    # A single id that is forgotten is an error.
    if squeue.returncode != 0 and "Invalid job id" not in squeue.stderr:
        raise ConfigError(f"SLURM does not answer: {' '.join(squeue.stderr.split())}")
    found = {}
    for line in squeue.stdout.splitlines():
        job, state, reason, restarts = (field.strip() for field in line.split("|")[:4])
        found[job] = SlurmJob(state, reason, int(restarts or 0))
    if (wanted - found.keys()) and shutil.which("sacct"):
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={arrays}", "--format=JobID,State")
        for line in _run("sacct", *options).stdout.splitlines():  # nothing, without accounting
            job, state, *_ = line.split("|")
            found.setdefault(job, SlurmJob(state.split(" ")[0], "None", 0))  # "CANCELLED by 1000"
    return {job: found[job] for job in wanted & found.keys()}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
