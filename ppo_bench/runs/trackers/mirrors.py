"""Trackers during a training: processes that read the run's files and can neither fail nor delay it.

Each tracker has its own process, so that its threads, output, crashes and hangs stay there.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from ppo_bench.common.errors import reason
from ppo_bench.common.progress import say
from ppo_bench.configuration.choices import Tracker

READY_SECONDS = 5.0
"""Time that the end of a run waits for a tracker that is not ready yet, in seconds."""
FINISH_SECONDS = 20.0
"""Time that the end of a run waits for a ready tracker to finish, in seconds."""
PATIENCE = 30
"""Factor on these times where a command only mirrors finished runs."""


class Mirrors:
    """The trackers of runs that are trained together; they end with this context."""

    def __init__(self, folders: Sequence[Path], trackers: Mapping[str, Tracker], patience: int = 1) -> None:
        """Trackers by name, each for every run in `folders`; the end waits `patience` times as long as usual."""
        self._folders, self._trackers, self._patience = folders, trackers, patience
        self._processes: list[_Process] = []

    def __enter__(self) -> Mirrors:
        return self

    def start(self) -> None:
        """Start the processes; run.json and metrics.jsonl have to be ready to be followed."""
        for folder, (name, tracker) in itertools.product(self._folders, self._trackers.items()):
            try:
                self._processes.append(_Process(name, tracker, folder))
            except OSError as error:
                say(f"warning: tracker={name} cannot be started: {error}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.say_over()
        started = time.monotonic()
        try:
            if kind is None or not issubclass(kind, KeyboardInterrupt):
                for process in self._processes:
                    process.wait(started, self._patience)
        finally:
            for process in self._processes:
                process.close()


class _Process:
    def __init__(self, name: str, tracker: Tracker, folder: Path) -> None:
        self._name, self._log = name, folder / name / "mirror.log"
        self._log.parent.mkdir(exist_ok=True)
        target = f"{type(tracker).__module__}.{type(tracker).__qualname__}"
        options = json.dumps(asdict(tracker))  # type: ignore[call-overload]  # each choice is a dataclass
        command = [sys.executable, "-m", "ppo_bench.runs.trackers", str(folder), target, options]
        self._socket, theirs = socket.socketpair()
        with theirs, open(self._log, "w") as log:
            # A session of its own, so that a terminal's interrupt reaches the training alone.
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=log, stderr=log, start_new_session=True
            )
        self._given_up = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        code = self._process.wait()
        if code and not self._given_up:
            with suppress(OSError):
                why = reason(code, self._log.read_text(errors="replace").splitlines())
                say(f"warning: tracker={self._name} has stopped: {why}")
        self._ended.set()

    def say_over(self) -> None:
        """Tell the tracker that the run has ended, so that it reads the last rows."""
        with suppress(OSError):  # the tracker may have ended by itself
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, started: float, patience: int) -> None:
        """Wait for the tracker's end. The limits count from `started` and are `patience` times as long as usual."""
        ready = self._is_ready(started + patience * READY_SECONDS - time.monotonic())
        limit = patience * (FINISH_SECONDS if ready else READY_SECONDS)
        self._ended.wait(max(0.0, started + limit - time.monotonic()))

    def close(self) -> None:
        """Stop the tracker if it is still running."""
        self._given_up = not self._ended.is_set()
        if self._given_up:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._ended.wait(1.0)
            say(f"warning: tracker={self._name} did not finish in time and was stopped; see {self._log}")
        self._socket.close()

    def _is_ready(self, seconds: float) -> bool:
        self._socket.settimeout(max(0.001, seconds))
        try:
            return self._socket.recv(1) == b"r"
        except OSError:
            return False
