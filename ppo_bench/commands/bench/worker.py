"""The process of one program, which measures whenever it has its turn."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ppo_bench.commands.bench.laps import Start
from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config

SECONDS_TO_END = 5.0

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
        self._process = spawn.Process(target=_work, args=(theirs, make, config))
        self._process.start()
        theirs.close()
        self.start: Start = self._answer()

    def turn(self) -> Turn_co:
        """Have it measure; raises `Failed` if it has ended."""
        with suppress(OSError):  # that it has ended is what its answer says
            self._connection.send(None)
        answer: Turn_co = self._answer()
        return answer

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(SECONDS_TO_END)
            code = self._process.exitcode or 0
            why = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended; its own error stands above"
            raise Failed(f"a program's process {why}") from error
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(SECONDS_TO_END)
        self._process.kill()
        self._process.join()


class Measured(NamedTuple):
    """One program's figures."""

    start: Start
    turns: list[Any]
    """What `Measures.turn` returned each time."""


def in_turn(
    programs: Sequence[tuple[Callable[[Config], Measures[Any]], Config]], rounds: int, iterations: int
) -> list[Measured]:
    """Every program's turns, taken in alternation: `rounds` times `iterations` of each. Raises `Failed`."""
    running: list[Program[Any]] = []
    turns: list[list[Any]] = [[] for _ in programs]
    try:
        for make, config in programs:
            running.append(Program(make, config))
            say(f"ready: {config.framework.name} on {config.backend.name} ({len(running)} of {len(programs)})")
        for round_ in range(rounds):
            for program, taken in zip(running, turns, strict=True):
                taken += [program.turn() for _ in range(iterations)]
            say(f"round {round_ + 1} of {rounds}")
        return [Measured(program.start, taken) for program, taken in zip(running, turns, strict=True)]
    finally:
        for program in running:
            program.stop()


def _work(connection: Connection, make: Callable[[Config], Measures[Any]], config: Config) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interruption is for the parent, which ends this
    try:
        measured = make(config)
    except ConfigError as error:
        connection.send(error)
        return
    answer: Any = measured.start
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            connection.send(answer)
            connection.recv()
            answer = measured.turn()
