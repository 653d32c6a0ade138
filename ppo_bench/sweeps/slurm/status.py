"""State of every run that launch/slurm.py submitted under an outputs folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ppo_bench.common.errors import require
from ppo_bench.common.files import are_complete, first_unfinished
from ppo_bench.sweeps.slurm.commands import ActiveJob, active_jobs
from ppo_bench.sweeps.slurm.ledger import job_of_run, jobs_folder


class RunStatus(NamedTuple):
    """State of the runs that a job trains: one, unless a program trains several."""

    state: str
    """`done`, `running`, `queued` or `failed`; `unknown` on a machine without SLURM."""
    folder: str
    """The first run that is unfinished, else the first: its folder, relative to the outputs folder."""
    job: str
    detail: str
    """Reason why they are queued or failed; empty if there is none."""


def statuses(outputs: Path) -> list[RunStatus]:
    """The status of every run by its latest job. Raises `ConfigError` if SLURM does not answer."""
    folders: dict[str, list[Path]] = {}
    for run, job in job_of_run(outputs).items():
        folders.setdefault(job, []).append(outputs / run)
    # SLURM is asked before files are read: a run that ends in between then counts as done, not as lost.
    active = active_jobs(job for job in folders if not are_complete(folders[job]))
    found = []
    for job, runs in folders.items():
        state, detail = ("done", "") if are_complete(runs) else _unfinished(jobs_folder(outputs), job, active)
        found.append(RunStatus(state, str(first_unfinished(runs).relative_to(outputs)), job, detail))
    return found


def _unfinished(jobs: Path, job: str, active: dict[str, ActiveJob] | None) -> tuple[str, str]:
    """State of a job without the results of its runs, and the reason for it."""
    log, result = (jobs / f"{job}_0_{file}" for file in ("log.out", "result.pkl"))
    if result.exists():
        return "failed", f"{_raised(jobs, job) or 'its result is gone'}; see {log}"
    if active is None:
        return "unknown", "squeue is not on the PATH of this machine"
    if here := active.get(job):
        requeues = [f"requeues: {here.requeues}"] if here.requeues else []
        return "running" if here.runs else "queued", ", ".join([*([] if here.runs else [here.reason]), *requeues])
    return "failed", "its job ended without a result" + (f"; see {log}" if log.exists() else "")


def _raised(jobs: Path, job: str) -> str:
    """The last line of the traceback that a job ended with, less the name of the exception; empty if it succeeded."""
    require("submitit", "slurm", "the reason of a failed job")
    from submitit import SlurmJob

    if (error := SlurmJob(jobs, job).exception()) is None:
        return ""
    *_, traceback, _ = str(error).split(f"\n{'-' * 22}\n")
    return traceback.strip().splitlines()[-1].partition(": ")[2]
