"""Record of submissions under an outputs folder: `<outputs>/.slurm/`, apart from the folders of runs.

submitted.json   the latest job of each run, by the run's folder relative to the outputs folder
jobs/            submitit's own files: <job>_<task>_log.out, what a task printed; <job>_<task>_result.pkl, its result
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ppo_bench.common.files import lock, make_folder, read_json, write_json


def jobs_folder(outputs: Path) -> Path:
    """The folder of submitit's files."""
    return outputs / ".slurm" / "jobs"


def job_of_run(outputs: Path) -> dict[str, str]:
    """The latest job of every run ever submitted, oldest first, by the run's folder relative to `outputs`."""
    path = outputs / ".slurm" / "submitted.json"
    return read_json(path, "move it away: its runs are then submitted again") if path.exists() else {}


def record(outputs: Path, submitted: dict[str, str]) -> None:
    """Record the jobs of runs that were submitted, by folder."""
    kept = {run: job for run, job in job_of_run(outputs).items() if run not in submitted}
    write_json(outputs / ".slurm" / "submitted.json", kept | submitted)


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
