"""Worker processes that answer messages; each has its own flags, threads and caches."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.common.rank_info import set_rank_variables
from ppo_bench.common.stopping import STOP_SIGNALS, defer_stop_signals

EXIT_TIMEOUT_SECONDS = 5.0

WorkerFunction = Callable[..., Generator[Any, Any, None]]
"""The function of a worker: a generator that is sent messages and yields answers, or None where it has no answer."""


class Worker:
    """The parent's handle of a spawned process that runs `serve(*arguments)`; errors call the process `name`."""

    def __init__(self, name: str, serve: WorkerFunction, *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._name = name
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_run_worker, args=(theirs, serve, arguments))
        with defer_stop_signals():  # so that Ctrl-C does not interrupt its imports
            self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        """Send a message. If the process has ended, `receive` reports it."""
        with suppress(OSError):
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for the next answer. Raises the worker's own `ConfigError` or `RunError`, and `RunError` if it has
        ended."""
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(EXIT_TIMEOUT_SECONDS)
            code = self._process.exitcode or 0
            why = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended; its own error is above"
            raise RunError(f"the process of {self._name} {why}") from error
        if isinstance(answer, ConfigError | RunError):
            raise answer
        return answer

    def stop(self) -> None:
        """End the process: it exits when its connection closes, or is killed after `EXIT_TIMEOUT_SECONDS`."""
        self._connection.close()
        self._process.join(EXIT_TIMEOUT_SECONDS)
        self._process.kill()
        self._process.join()


class RankWorkers:
    """A worker for each rank of a training on this machine, which get the same messages; one alone without ranks."""

    def __init__(self, name: str, count: int, serve: WorkerFunction, *arguments: Any) -> None:
        self._folder = TemporaryDirectory(prefix="ppo_bench-")
        store = str(Path(self._folder.name, "store"))
        ranks = [(rank, count, store) for rank in range(count)] if count > 1 else [None]
        self._workers = [Worker(name, _serve_rank, rank, serve, arguments) for rank in ranks]

    def send(self, message: Any) -> None:
        """See `Worker.send`."""
        for worker in self._workers:
            worker.send(message)

    def receive(self) -> list[Any]:
        """The next answer of each worker, in order; see `Worker.receive`."""
        return [worker.receive() for worker in self._workers]

    def stop(self) -> None:
        """See `Worker.stop`."""
        for worker in self._workers:
            worker.stop()
        self._folder.cleanup()


def _serve_rank(rank: tuple[int, int, str] | None, serve: WorkerFunction, arguments: tuple[Any, ...]) -> Any:
    if rank:
        set_rank_variables(*rank)
    return serve(*arguments)


def _run_worker(connection: Connection, serve: WorkerFunction, arguments: tuple[Any, ...]) -> None:
    set_worker_signals()
    try:
        answers = serve(*arguments)
        answer = next(answers)
        while True:
            if answer is not None:
                connection.send(answer)
            answer = answers.send(connection.recv())
    except (ConfigError, RunError) as error:
        connection.send(error)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended or closed the connection
        pass


def set_worker_signals() -> None:
    """Ignore Ctrl-C in this process, since its parent will end it, and unblock the stop signals that the parent
    blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
