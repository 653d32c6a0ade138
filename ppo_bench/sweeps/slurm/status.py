"""`python launch/status.py DIR`: state of every run that launch/slurm.py submitted under an outputs folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ppo_bench.common.cli import Parser
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.files import are_complete, first_unfinished
from ppo_bench.runs.results import progress_of
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


def main(arguments: list[str]) -> int:
    """Print a table of all jobs, and the number of them in each state."""
    parser = Parser("python launch/status.py", description=__doc__)
    parser.add_argument("outputs", metavar="DIR", help="the folder that outputs= named, or outputs")
    outputs = Path(parser.parse_args(arguments).outputs)
    if not (outputs / ".slurm").is_dir():
        raise ConfigError(
            f"nothing was submitted under {outputs}: name the folder that outputs= named to launch/slurm.py"
        )
    found = statuses(outputs)
    rows = [(run.state, run.folder, run.job, *_progress(outputs / run.folder), run.detail) for run in found]
    print(aligned([("state", "run", "job", "steps", "SPS", "remarks"), *rows]))
    counts = Counter(run.state for run in found)
    states = ("done", "running", "queued", "failed", *(["unknown"] if counts["unknown"] else []))
    print(f"{len(found)} runs: {', '.join(f'{counts[state]} {state}' for state in states)}")
    return 0


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


def _progress(folder: Path) -> tuple[str, str]:
    """Steps done of the total, and their speed: the mean of a finished run, else that of the last iteration.

    Dashes for a run with damaged files.
    """
    try:
        run = progress_of(folder)
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError):
        return "-", "-"
    return f"{run.step:,} of {run.total:,}", "-" if run.sps is None else f"{run.sps:,.0f}"
