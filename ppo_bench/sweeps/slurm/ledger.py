"""Record of submissions under an outputs folder: `<outputs>/.slurm/`, apart from the folders of runs.

submissions/<job>.json   the folders of the runs of each training, by job; written after SLURM accepted a submission
jobs/                    submitit's own files and logs, all named <job>_...
jobs/<job>.run<k>.log    the output of the k-th training of a job
jobs/<job>.run<k>.json   the reason why that run failed; exists only if it did
jobs/<job>.rank<r>.*     the output of rank r of a run on several nodes, and the reason why its process failed, by try
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ppo_bench.common.files import make_folder, read_json, write_json
from ppo_bench.common.locks import lock


class Place(NamedTuple):
    """Position of a run in a submission: the job's id (`<array>_<task>` or `<job>`) and the run's index in the job."""

    job: str
    position: int


def jobs_folder(outputs: Path) -> Path:
    """The folder of the jobs' logs."""
    return outputs / ".slurm" / "jobs"


def log_file(jobs: Path, place: Place) -> Path:
    """The log of a run: its output in all tries of its job."""
    return jobs / f"{place.job}.run{place.position}.log"


def failure_file(jobs: Path, place: Place) -> Path:
    """The file `{"reason": ...}` of a run, which exists only if the run failed."""
    return jobs / f"{place.job}.run{place.position}.json"


def log_file_of_rank(jobs: Path, job: str, rank: int) -> Path:
    """The log of one of the other processes of a run on several nodes."""
    return jobs / f"{job}.rank{rank}.log"


def failure_file_of_rank(jobs: Path, job: str, rank: int, restarts: int) -> Path:
    """The file `{"reason": ...}` of such a process, which exists only if it failed in this try of the job."""
    return jobs / f"{job}.rank{rank}.try{restarts}.json"


def failure_files_of_ranks(jobs: Path, job: str, restarts: int) -> list[Path]:
    """Those of all processes that have failed in this try of the job."""
    return list(jobs.glob(f"{job}.rank*.try{restarts}.json"))


class Submitted(NamedTuple):
    """A training that was submitted, and the folders of its runs relative to `outputs`."""

    place: Place
    folders: tuple[str, ...]


def submitted(outputs: Path) -> list[Submitted]:
    """Every training ever submitted, oldest first."""
    damaged = "move it away: its jobs are then unknown, and their runs are submitted again"
    submissions = [read_json(path, damaged) for path in (outputs / ".slurm" / "submissions").glob("*.json")]
    submissions.sort(key=lambda submission: submission["submitted"])
    return [
        # Earlier versions wrote the only folder of a training.
        Submitted(Place(job, position), (folders,) if isinstance(folders, str) else tuple(folders))
        for submission in submissions
        for job, trainings in submission["jobs"].items()
        for position, folders in enumerate(trainings)
    ]


def record(outputs: Path, jobs: Mapping[str, Sequence[Sequence[str]]]) -> None:
    """Record the trainings of each job of a submission, in their order."""
    folder = outputs / ".slurm" / "submissions"
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    write_json(folder / f"{next(iter(jobs)).partition('_')[0]}.json", {"submitted": now, "jobs": jobs})


@contextmanager
def one_at_a_time(outputs: Path) -> Iterator[None]:
    """Wait for other submissions under `outputs` to end, so that no run is submitted twice.

    Raises `ConfigError` if the folder cannot be written.
    """
    folder = outputs / ".slurm"
    make_folder(folder)
    with open(folder / "lock", "w") as file:
        lock(file.fileno(), wait=True)
        yield
