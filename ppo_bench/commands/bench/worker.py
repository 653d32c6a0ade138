"""Processes of the measured programs, which take turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

from ppo_bench.commands.bench.laps import StartUp
from ppo_bench.common.progress import say
from ppo_bench.common.workers import Worker
from ppo_bench.configuration.config import Config


class Measures(Protocol):
    """An object in a program's process that takes measurements."""

    start: StartUp

    def turn(self) -> Any:
        """Take one measurement."""


class Program:
    """The process of one program, which measures when it is asked to."""

    def __init__(self, make: Callable[[Config], Measures], config: Config) -> None:
        """Start the process, which calls `make(config)`. Raises `ConfigError` or `Failed` if that fails."""
        self._worker = Worker(f"{config.framework.name} on {config.backend.name}", _measure, make, config)
        self.start: StartUp = self._worker.answer()

    def turn(self) -> Any:
        """Ask for a measurement and wait for it. Raises `Failed` if the process has ended."""
        self._worker.ask(None)
        return self._worker.answer()

    def stop(self) -> None:
        """End the process."""
        self._worker.stop()


def _measure(make: Callable[[Config], Measures], config: Config) -> Generator[Any, None, None]:
    measured = make(config)
    yield measured.start
    while True:
        yield measured.turn()


class Measured(NamedTuple):
    """The measurements of one program."""

    start: StartUp
    turns: list[Any]
    """Results of `Measures.turn`, in order."""


def in_turn(
    programs: Sequence[tuple[Callable[[Config], Measures], Config]], rounds: int, iterations: int
) -> list[Measured]:
    """The measurements of each program. Programs alternate: in each of `rounds` rounds, every program takes
    `iterations` measurements in a row. Raises `Failed` if a process ends."""
    running: list[Program] = []
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
