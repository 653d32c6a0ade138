"""Processes of the measured programs, which take turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

from ppo_bench.commands.bench.laps import StartUp
from ppo_bench.common.progress import say
from ppo_bench.common.workers import RankWorkers
from ppo_bench.configuration.config import Config


class Measures(Protocol):
    """An object in a program's process that takes measurements."""

    start: StartUp

    def turn(self) -> Any:
        """Take one measurement."""


class Program:
    """The process of one program, or one for each rank, which measures when it is asked to. Leaving it as a context
    manager ends it."""

    def __init__(self, make: Callable[[Config], Measures], config: Config) -> None:
        """Start the process, which calls `make(config)`. Raises `ConfigError` or `Failed` if that fails."""
        name = f"{config.framework.name} on {config.backend.name}"
        self._workers = RankWorkers(name, config.processes, _measure, make, config)
        starts: list[StartUp] = self._workers.answers()
        self.start = starts[0]._replace(peak_memory_bytes=sum(start.peak_memory_bytes for start in starts))

    def turn(self) -> Any:
        """Ask for a measurement and wait for it. Raises `Failed` if the process has ended."""
        self._workers.ask(None)
        return self._workers.answers()[0]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.stop()


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
    make: Callable[[Config], Measures], configs: Sequence[Config], rounds: int, iterations: int
) -> list[Measured]:
    """The measurements of each program. Programs alternate: in each of `rounds` rounds, every program takes
    `iterations` measurements in a row. Raises `Failed` if a process ends."""
    with ExitStack() as processes:
        programs = []
        for config in configs:
            programs.append(processes.enter_context(Program(make, config)))
            say(f"ready: {config.framework.name} on {config.backend.name} ({len(programs)} of {len(configs)})")
        measured = [Measured(program.start, []) for program in programs]
        for round_ in range(rounds):
            for program, (_, turns) in zip(programs, measured, strict=True):
                turns += [program.turn() for _ in range(iterations)]
            say(f"round {round_ + 1} of {rounds}")
        return measured
