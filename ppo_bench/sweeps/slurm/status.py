"""`python launch/status.py DIR`: state of every run that launch/slurm.py submitted under an outputs folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ppo_bench.common.cli import Parser
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import are_complete, first_unfinished, read_json
from ppo_bench.runs.results import progress_of
from ppo_bench.sweeps.slurm import ledger
from ppo_bench.sweeps.slurm.job import last_line
from ppo_bench.sweeps.slurm.ledger import Submitted
from ppo_bench.sweeps.slurm.queue import QUEUED, RUNNING, SlurmJob, jobs

ENDINGS = {
    "TIMEOUT": "over its time limit, and not queued again",
    "CANCELLED": "cancelled",
    "OUT_OF_MEMORY": "out of memory: raise launch.memory_gb",
    "NODE_FAIL": "its node failed",
    "COMPLETED": "its job ended without a result",
    "FAILED": "its job failed",
}

UNKNOWN = SlurmJob("UNKNOWN", "", 0)


class RunStatus(NamedTuple):
    """State of a run."""

    state: str
    """`done`, `running`, `queued` or `failed`; `unknown` on a machine without SLURM."""
    folders: tuple[str, ...]
    """The run's folder, relative to the outputs folder; if one program trains several runs, all of theirs."""
    folder: str
    """The first of them that is unfinished, else the first."""
    job: str
    detail: str
    """Reason why the run is queued or failed; empty if there is none."""


def main(arguments: list[str]) -> int:
    """Print a table of all runs, and the number of runs in each state."""
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
    print(summary(found))
    return 0


def summary(found: Sequence[RunStatus]) -> str:
    """Number of runs in each state, as a line of text."""
    counts = Counter(run.state for run in found)
    states = ("done", "running", "queued", "failed", *(["unknown"] if counts["unknown"] else []))
    parts = [f"{counts[state]} {state}" for state in states]
    return f"{len(found)} runs: {', '.join(parts)}"


def statuses(outputs: Path) -> list[RunStatus]:
    """The status of every run by its latest submission. Raises `ConfigError` if SLURM does not answer."""
    submitted = ledger.submitted(outputs)
    latest = {training.folders: training for training in submitted}
    of_job: dict[str, list[Submitted]] = {}
    for training in submitted:
        of_job.setdefault(training.place.job, []).append(training)
    unfinished = {training.place.job for training in latest.values() if not _is_done(outputs, training)}
    # SLURM is asked before files are read: a run that ends in between then counts as done, not as lost.
    known = jobs(unfinished)
    if known is None:
        known = dict.fromkeys(unfinished, UNKNOWN)
    return [
        _status(outputs, training, of_job[training.place.job], known.get(training.place.job))
        for training in latest.values()
    ]


def _is_done(outputs: Path, training: Submitted) -> bool:
    return are_complete([outputs / run for run in training.folders])


def _status(outputs: Path, training: Submitted, of_job: Sequence[Submitted], job: SlurmJob | None) -> RunStatus:
    folder, place = ledger.jobs_folder(outputs), training.place
    failure = ledger.failure_file(folder, place)
    if _is_done(outputs, training):
        state, detail = "done", ""
    elif failure.exists():
        state, detail = "failed", f"{read_json(failure)['reason']}; see {ledger.log_file(folder, place)}"
    elif job is None or job.state not in QUEUED | RUNNING:
        state, detail = _ended(job, folder / f"{place.job}_0_log.err")
    else:
        before = sum(
            not _is_done(outputs, other) and not ledger.failure_file(folder, other.place).exists()
            for other in of_job[: place.position]
        )
        waits = job.state in QUEUED or before > 0
        why = [job.reason] if job.state in QUEUED else [f"{before} before it in its job"] if before else []
        again = [f"requeues: {job.restarts}"] if job.restarts else []
        state, detail = "queued" if waits else "running", ", ".join(why + again)
    shown = first_unfinished([outputs / run for run in training.folders])
    return RunStatus(state, training.folders, str(shown.relative_to(outputs)), place.job, detail)


def _ended(job: SlurmJob | None, log: Path) -> tuple[str, str]:
    """State and reason of a run whose job is over and which left neither a result nor a reason."""
    if job == UNKNOWN:
        return "unknown", "there is no squeue on this machine to ask"
    reason = ENDINGS.get(job.state, job.state.lower()) if job else "its job left the queue without a result"
    said = last_line(log)
    return "failed", f"{reason}: {said}; see {log}" if said else reason


def _progress(folder: Path) -> tuple[str, str]:
    """Steps done of the total, and their speed: the mean of a finished run, else that of the last iteration.

    Dashes for a run with damaged files.
    """
    try:
        run = progress_of(folder)
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError):
        return "-", "-"
    return f"{run.step:,} of {run.total:,}", "-" if run.sps is None else f"{run.sps:,.0f}"
