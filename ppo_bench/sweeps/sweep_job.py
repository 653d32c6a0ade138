"""One job of a sweep: a training in a child process, with CPUs of its own if several jobs run at the same time.

Hydra's launchers call it in the sweep's process or in other processes, perhaps on other machines. It therefore writes
its outcome to a file, the sweep's journal.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.common.files import are_complete, first_unfinished
from ppo_bench.common.locks import lock
from ppo_bench.common.progress import say
from ppo_bench.configuration.compose import search_path
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.provenance import JOBS_AT_ONCE
from ppo_bench.runs.results import in_use
from ppo_bench.sweeps.child import train_in_process
from ppo_bench.sweeps.journal import POLL_SECONDS, JobOutcome, Journal, finished
from ppo_bench.sweeps.slurm.job import requeue
from ppo_bench.tuning.cores import keep_to_cores
from ppo_bench.tuning.machine import is_alive

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass
class SweepJob:
    """The task function that a launcher calls for each job."""

    journal: Path
    shares: list[list[int]] = field(default_factory=list)
    """Sets of CPUs, one for each job that runs at the same time; empty if jobs run one after the other."""
    sweep_process: int | None = None
    """Id of the sweep's process. No job starts after it has ended; None if jobs run on other machines."""
    stop_requests: list[int] = field(default_factory=list)
    """Signals by which this process was asked to stop."""
    visible_devices: str | None = None
    """`CUDA_VISIBLE_DEVICES` of the sweep's process."""
    total: int = 0
    """Number of jobs of the sweep; 0 if it is not known, as in a search."""

    def __call__(self, _: DictConfig) -> float | None:
        """Train the job of Hydra's current configuration; returns its `final_return_mean`, None if there is none."""
        with _share(self.journal.parent, self.shares, self._is_over) as share:
            if self._is_over():
                return None
            hydra = HydraConfig.get()
            task = OmegaConf.to_container(hydra.overrides.task, resolve=False)  # as the sweep knows them
            words = [str(word) for word in task or ()]
            say(f"{self._which(hydra.job.num)}: {' '.join(words)}")
            try:
                outcome, value = self._outcome(words, bool(share))
            except Exception as error:  # Hydra keeps what a job raises to itself
                outcome, value = JobOutcome("failed", words, "", f"{type(error).__name__}: {one_line(error)}"), None
        if outcome:
            Journal(self.journal).add(outcome)
            shown = "" if value is None else f", final_return_mean {value:.2f}"
            say(f"{self._which(hydra.job.num)}: {outcome.state}{shown}")
        return value

    def _which(self, number: int) -> str:
        return f"job {number + 1}" + (f" of {self.total}" if self.total else "")

    def _is_over(self) -> bool:
        return bool(self.stop_requests) or (self.sweep_process is not None and not is_alive(self.sweep_process))

    def _outcome(self, words: list[str], shared: bool) -> tuple[JobOutcome | None, float | None]:
        try:
            config = load_config([*_search_path(), *words])
            config.require()
        except ConfigError as error:  # a sweeper has chosen wrong values
            return JobOutcome("failed", words, "", str(error)), None
        folders = config.folders
        if are_complete(folders):
            return finished("skipped", words, folders)
        while True:
            self._wait_for(folders)
            if self._is_over():
                return None, None
            failure = None if are_complete(folders) else self._train(words, shared)
            if failure is None or are_complete(folders):  # its process may end badly after its result is written
                return finished("done", words, folders)
            if self.stop_requests:
                return None, None
            if not any(map(in_use, folders)):  # otherwise another process has started to train there in the meantime
                return JobOutcome("failed", words, str(first_unfinished(folders)), failure), None

    def _wait_for(self, folders: Sequence[Path]) -> None:
        """Wait until no other process trains in any of `folders`, such as one whose sweep was killed."""
        for folder in folders:
            if in_use(folder):
                say(f"waiting for {folder}, which is being trained by another process")
            while in_use(folder) and not self._is_over():
                time.sleep(POLL_SECONDS)

    def _train(self, words: Sequence[str], shared: bool) -> str | None:
        """Train; returns the reason of a failure, or None. On SLURM a job that is told to end is queued again."""
        environment = os.environ | ({JOBS_AT_ONCE: str(len(self.shares))} if shared else {})
        if environment.get("SUBMITIT_EXECUTOR") == "local" and not environment.get(VISIBLE_DEVICES):
            # submitit hides the GPUs from jobs that ask for none.
            environment = {key: value for key, value in environment.items() if key != VISIBLE_DEVICES}
            environment |= {VISIBLE_DEVICES: self.visible_devices} if self.visible_devices is not None else {}
        try:
            failure = train_in_process([*_search_path(), *words], self.stop_requests, environment=environment)
        except subprocess.SubprocessError:  # submitit's own attempt to requeue the job failed, or took too long
            requeue()
        except Exception as error:  # submitit's signal handler raises if the job timed out too often
            return str(error)
        if failure and self.stop_requests and os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
            requeue()
        return failure.reason if failure else None


def _search_path() -> list[str]:
    return search_path(HydraConfig.get().overrides.hydra)


@contextmanager
def _share(folder: Path, shares: list[list[int]], is_over: Any) -> Iterator[list[int]]:
    """A context in which this process and its children run only on one of `shares`, which no other job here uses.

    It waits for a free share, and yields it; the result is empty if `shares` is empty or the sweep is over. The CPU
    affinity enforces it; threads of PyTorch, XLA and EnvPool respect that.
    """
    held = _hold_share(folder, shares, is_over) if shares else None
    if held is None:
        yield []
        return
    share, locks = held
    with locks, keep_to_cores(share):
        yield share


def _hold_share(folder: Path, shares: list[list[int]], is_over: Any) -> tuple[list[int], ExitStack] | None:
    """A free share with the locks of its CPUs, which are held; None if the sweep is over before one is free."""
    waiting = False
    while not is_over():
        for share in shares:
            if locks := _locks(folder, share):
                return share, locks
        if not waiting:
            say(f"waiting for CPUs, which other runs in {folder.parent} have")
        waiting = True
        time.sleep(POLL_SECONDS)
    return None


def _locks(folder: Path, share: Sequence[int]) -> ExitStack | None:
    """Locks of all CPUs of a share, held until they are closed; None if another job has one of these CPUs."""
    with ExitStack() as locks:
        for cpu in share:  # files are named after the machine, since several machines may share the folder
            file = locks.enter_context(open(folder / f"cpu.{socket.gethostname()}.{cpu}", "w"))
            if not lock(file.fileno()):
                return None
        return locks.pop_all()
