"""The process of one program, which measures whenever it has its turn."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

from ppo_bench.bench.laps import Start
from ppo_bench.config import Config
from ppo_bench.errors import ConfigError, Failed

Turn_co = TypeVar("Turn_co", covariant=True)


class Measures(Protocol[Turn_co]):
    """What measures, in the program's process."""

    start: Start

    def turn(self) -> Turn_co:
        """One measurement."""


class Program(Generic[Turn_co]):
    """The parent's end of a program's process."""

    def __init__(self, make: Callable[[Config], Measures[Turn_co]], config: Config) -> None:
        """`make(config)` is called in the process. Raises `ConfigError` or `Failed` if that cannot be done."""
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(theirs, make, config), daemon=True)
        self._process.start()
        theirs.close()
        self.start: Start = self._answer()

    def turn(self) -> Turn_co:
        """Have it measure; raises `Failed` if it has ended."""
        self._connection.send(None)
        answer: Turn_co = self._answer()
        return answer

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise Failed("a program's process ended; its own error stands above") from error
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(5.0)
        self._process.kill()


def _work(connection: Connection, make: Callable[[Config], Measures[Any]], config: Config) -> None:
    try:
        measured = make(config)
        connection.send(measured.start)
        while True:
            connection.recv()
            connection.send(measured.turn())
    except ConfigError as error:
        connection.send(error)
    except (EOFError, OSError):  # the parent is gone
        pass
