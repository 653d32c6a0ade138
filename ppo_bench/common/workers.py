"""Worker processes that answer messages; each has its own flags, threads and caches."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from ppo_bench.common.errors import ConfigError, RankLostError, RunError
from ppo_bench.common.rank_info import set_rank_variables
from ppo_bench.common.stopping import STOP_SIGNALS, defer_stop_signals

EXIT_TIMEOUT_SECONDS = 5.0

WorkerFunction = Callable[..., Generator[Any, Any, None]]
"""The function of a worker: a generator that is sent messages and yields answers, or None where it has no answer."""


class RankWorkers:
    """Spawned processes that run `serve(*arguments)` and get the same messages: one for each rank of a training.

    Errors call them `name`. Use it as a context manager, which ends them.
    """

    def __init__(self, name: str, count: int, serve: WorkerFunction, *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._name, self._folder = name, TemporaryDirectory(prefix="ppo_bench-")
        self._workers: list[tuple[Any, Connection]] = []
        store = str(Path(self._folder.name, "store"))
        try:
            for rank in range(count):
                ours, theirs = spawn.Pipe()
                rank_variables = (rank, count, store) if count > 1 else None
                process = spawn.Process(target=_run_worker, args=(theirs, rank_variables, serve, arguments))
                with defer_stop_signals():  # so that Ctrl-C does not interrupt its imports
                    process.start()
                    self._workers.append((process, ours))
                theirs.close()
        except BaseException:  # such as Ctrl-C; Python would wait for the processes at its own end
            self.__exit__()
            raise

    def send(self, message: Any) -> None:
        """Send a message to each. If a process has ended, `receive` reports it."""
        for _, connection in self._workers:
            with suppress(OSError):
                connection.send(message)

    def receive(self) -> list[Any]:
        """Wait for the next answer of each, in order. Raises a worker's own `ConfigError` or `RunError`, and `RunError`
        if one has ended. The loss of a worker that others have noticed comes after its own reason."""
        answers, lost = list[Any](), None
        for worker in self._workers:
            try:
                answers.append(self._answer(*worker))
            except RankLostError as error:
                lost = lost or error
        if lost:
            raise lost
        return answers

    def _answer(self, process: Any, connection: Connection) -> Any:
        try:
            answer = connection.recv()
        except (EOFError, OSError) as error:
            process.join(EXIT_TIMEOUT_SECONDS)
            code = process.exitcode or 0
            why = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended; its own error is above"
            raise RunError(f"the process of {self._name} {why}") from error
        if isinstance(answer, ConfigError | RunError):
            raise answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes: they exit when their connections close, or are killed after `EXIT_TIMEOUT_SECONDS`."""
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            process.join(EXIT_TIMEOUT_SECONDS)
            process.kill()
            process.join()
        self._folder.cleanup()


def _run_worker(
    connection: Connection,
    rank_variables: tuple[int, int, str] | None,
    serve: WorkerFunction,
    arguments: tuple[Any, ...],
) -> None:
    # The parent ends this process on Ctrl-C, and has blocked stop signals for its start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    if rank_variables:
        set_rank_variables(*rank_variables)
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
