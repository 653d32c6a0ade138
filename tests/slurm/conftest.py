"""A cluster for the tests of this folder that one process makes, and commands that run on it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.runs.results import progress_of
from ppo_bench.sweeps.slurm import status, submit
from tests.slurm.cluster import Node, cluster, slurm, wait_for, wait_for_an_empty_queue
from tests.training import ROOT


@pytest.fixture(scope="session", autouse=True)
def nodes() -> Iterator[dict[str, Node]]:
    """The nodes of the cluster, by name."""
    with cluster() as nodes:
        yield nodes


class Line(NamedTuple):
    """The state and the progress of a run."""

    state: str
    job: str
    steps: int
    total: int
    remarks: str


class Runs:
    """What was launched under one folder of outputs."""

    def __init__(self, outputs: Path) -> None:
        self.outputs = outputs

    def launch(self, *overrides: str, cpus: int = 1) -> str:
        """launch/slurm.py: what it says last."""
        words = [*overrides, f"outputs={self.outputs}", f"launch.cpus={cpus}", "launch.memory_gb=1"]
        return said_by(submit.main, *words)[1].splitlines()[-1]

    def status(self) -> dict[str, Line]:
        """The state and the progress of each run, by the name of its folder."""
        found = {}
        for run in status.statuses(self.outputs):
            folder = self.outputs / run.folder
            try:
                step, total, _ = progress_of(folder)
            except ConfigError:  # it has not begun
                step, total = 0, 0
            found[folder.name] = Line(run.state, run.job, step, total, run.detail)
        return found

    def wait(self, what: str, condition: Callable[[dict[str, Line]], object]) -> dict[str, Line]:
        """The first status for which `condition` holds."""
        seen: list[dict[str, Line]] = []

        def holds() -> object:
            seen.append(self.status())
            return condition(seen[-1])

        with self._told():
            wait_for(what, holds, pause=0.5)
        return seen[-1]

    def wait_until_idle(self) -> dict[str, Line]:
        """The status when nothing is queued or running."""
        with self._told():
            wait_for_an_empty_queue()
        return self.status()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A context in which an `AssertionError` carries what there was instead."""
        try:
            yield
        except AssertionError as error:
            error.add_note(slurm("scontrol", "show", "job"))
            for run, line in self.status().items():
                error.add_note(f"{run}: {line}")
            for log in sorted(self.outputs.glob(".slurm/jobs/*_log.out")):
                error.add_note(f"{log.name}:\n{log.read_text()[-2000:]}")
            raise

    def folder(self, run: str) -> Path:
        """Where a run is, once it has begun."""
        (found,) = self.outputs.glob(f"default/*/{run}")
        return found

    def log(self, line: Line) -> str:
        """What a run printed, in all tries of its job."""
        return (self.outputs / ".slurm" / "jobs" / f"{line.job}_0_log.out").read_text()

    def wait_for_checkpoint(self, run: str) -> None:
        """Return when a run has its first checkpoint, or later."""
        wait_for(
            f"a checkpoint of {run}",
            lambda: list(self.outputs.glob(f"default/*/{run}/checkpoints/iteration_*")),
        )


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """A folder of outputs of the test's own; its jobs end with the test."""
    runs = Runs(tmp_path / "runs")
    yield runs
    subprocess.run(["scancel", "--me"], check=False)
    wait_for_an_empty_queue()


def said_by(main: Callable[[list[str]], int], *words: str) -> tuple[str, str]:
    """What a command prints, called in this process: Python would take as long to start as a job to train."""
    with chdir(ROOT), redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
        code = exit_code(main, [*words])
    assert code == 0, stderr.getvalue()
    return stdout.getvalue(), stderr.getvalue()


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of this project, by the interpreter of the tests."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
