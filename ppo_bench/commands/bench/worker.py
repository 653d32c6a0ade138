"""Processes of the measured programs, which take turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from ppo_bench.commands.bench.training import StartUp
from ppo_bench.common.progress import print_status
from ppo_bench.common.workers import RankWorkers, WorkerFunction
from ppo_bench.configuration.config import Config


class Program(RankWorkers):
    """The process of one program, or one for each rank."""

    def __init__(self, measure: WorkerFunction, config: Config, *arguments: Any) -> None:
        """Start the process. Raises `ConfigError` or `RunError` if that fails.

        `measure(config, *arguments)` yields a `StartUp` and then a measurement for each message.
        """
        name = f"{config.framework.name} on {config.backend.name}"
        super().__init__(name, config.processes, measure, config, *arguments)
        try:
            starts: list[StartUp] = self.receive()
        except BaseException:  # such as Ctrl-C; Python would wait for the processes at its own end
            self.__exit__()
            raise
        self.start = starts[0]._replace(peak_memory_bytes=sum(start.peak_memory_bytes for start in starts))

    def turn(self) -> Any:
        """Ask for a measurement and wait for it. Raises `RunError` if the process has ended."""
        self.send(None)
        return self.receive()[0]


class Measured(NamedTuple):
    """The measurements of one program."""

    start: StartUp
    turns: list[Any]
    """The measurements after the start, in order."""


def in_turn(measure: WorkerFunction, configs: Sequence[Config], rounds: int, iterations: int) -> list[Measured]:
    """The measurements of each program. Programs alternate: in each of `rounds` rounds, every program takes
    `iterations` measurements in a row. Raises `RunError` if a process ends."""
    with ExitStack() as processes:
        programs = []
        for config in configs:
            programs.append(processes.enter_context(Program(measure, config)))
            print_status(f"ready: {config.framework.name} on {config.backend.name} ({len(programs)} of {len(configs)})")
        measured = [Measured(program.start, []) for program in programs]
        for round_ in range(rounds):
            for program, (_, turns) in zip(programs, measured, strict=True):
                turns += [program.turn() for _ in range(iterations)]
            print_status(f"round {round_ + 1} of {rounds}")
        return measured
