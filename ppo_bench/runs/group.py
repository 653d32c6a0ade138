"""A training shared by several processes, each with a part of the environments: one for each device or each node.

Rank 0 owns the run's folder and drives the outer loop through `GroupRunner`, which looks like one runner: each of its
calls goes to the runner (`Member`) of every process. Arrays are cut and joined along the environment axis.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from signal import SIGINT, SIGTERM, raise_signal
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.launched import MOST_PORT, Launched, accept, connect, launched, listen, told_number
from ppo_bench.common.rank_processes import serve, start
from ppo_bench.common.ranks import HANGS_SECONDS, STARTS_SECONDS, Other, Ranks, Ticks
from ppo_bench.common.stopping import stop_signals_withheld
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.parts import Part, cut, joined
from ppo_bench.runners.base import Episode, Meeting, Metrics, Problem, Runner
from ppo_bench.runners.declared import declared_arrays
from ppo_bench.runs.results import COMPILING_ITERATIONS
from ppo_bench.tuning.cores import cores_of_process, keep_to_cores, part_of_cores
from ppo_bench.tuning.machine import peak_memory_bytes

Wrap = Callable[[VectorEnv | GraphEnv, Part], Any]
"""Function that wraps the environments of each process."""


def as_made(env: VectorEnv | GraphEnv, part: Part) -> VectorEnv | GraphEnv:
    """The environments, unchanged."""
    return env


class Member:
    """One process's part of a training."""

    def __init__(self, rank: int, config: Config, meeting: Meeting, wrap: Wrap, ticks: Ticks) -> None:
        self._stack, self.part = ExitStack(), Part(rank, config.processes)
        place, cores = _place(self.part)
        with ExitStack() as building:
            building.callback(self._stack.close)
            self._stack.enter_context(keep_to_cores(cores))
            config.framework.begin(tuning=config.tuning, devices=config.devices_here)
            self._peers: Any = config.framework.join(self.part, meeting, ticks.tick)
            self._stack.callback(self._peers.close)
            task = replace(config.task, num_envs=self.part.size(config.ppo.num_envs))
            made = make_env(config.backend, task)
            building.callback(made.close)
            self.env = wrap(made, self.part)
            problem = config.problem(self.env)
            self.problem: Problem = replace(problem, part=self.part, peers=self._peers, place=place)
            self.runner: Runner[Any] = config.framework.runner(self.problem)
            building.pop_all()
        self._stack.callback(self.runner.close)  # waits for programs that still step the environments, and closes these
        self._declared = declared_arrays(self.problem)
        self._state: Any = None

    def init(self, seed: int) -> None:
        """See `Runner.init`."""
        self._state = self.runner.init(seed)

    def step(self) -> tuple[Metrics, list[Episode]]:
        """See `Runner.step`; episodes have the numbers of environments and steps that count over all processes."""
        self._state, metrics, episodes = self.runner.step(self._state)
        first, count = self.problem.first_env, self.part.count
        return metrics, [e._replace(env=first + e.env, step=e.step * count) for e in episodes]

    def export(self) -> Arrays:
        """See `Runner.export`, for this process's environments. Arrays that are the same in all come from rank 0."""
        arrays = self.runner.export(self._state)
        if self.part.index == 0:
            return arrays
        return {a.name: arrays[a.name] for a in self._declared if a.env_axis is not None and a.name in arrays}

    def restore(self, arrays: Arrays, carried: bool) -> None:
        """See `Runner.restore`; `arrays` hold all environments, of which this process takes its part."""
        self._state = self.runner.restore(cut(self._declared, arrays, self.part), carried)

    def in_progress(self) -> np.ndarray:
        """See `Runner.in_progress`, for this process's environments."""
        return self.runner.in_progress(self._state)

    def restart(self, iteration: int) -> None:
        """See `Runner.restart`."""
        self._state = self.runner.restart(self._state, iteration)

    def peak_memory_bytes(self) -> int:
        """Peak resident memory of this process."""
        return peak_memory_bytes()

    def on_env(self, method: str, *arguments: Any) -> Any:
        """Result of a method of the environments as `wrap` returned them."""
        return getattr(self.env, method)(*arguments)

    def close(self) -> None:
        """Close the environments and the connections to the other processes."""
        self._stack.close()


class GroupRunner:
    """The `Runner` in rank 0 for all processes. Its state is always None: each process keeps its own."""

    def __init__(self, config: Config, wrap: Wrap = as_made) -> None:
        """Start the other processes, one for each further device, or connect to those that a launcher started.

        Raises `ConfigError` if one of them cannot start.
        """
        ticks, told = Ticks(), launched()
        meeting, self._kept, others = _meet(config, told)
        self._ticks_within_steps = config.framework.process_per_device
        self._member, self._steps = None, 0
        with ExitStack() as starting:
            with stop_signals_withheld():  # until a signal would end the processes that are started here
                others = start(config.processes, Member, config, meeting, wrap) if told is None else others
                self._ranks = Ranks(others, ticks, "device" if config.framework.process_per_device else "process")
                starting.callback(self.close)
            try:
                self._member = Member(0, config, meeting, wrap, ticks)
                self._ranks.answers()
            except Exception as error:
                raise self._ranks.why(error) from error
            starting.pop_all()
        self.problem = self._member.problem
        self.execution: Mapping[str, object] = self._member.runner.execution

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Results of a method of every member, in the order of ranks. Raises if any member fails."""
        compiled = method == "step" and self._steps >= COMPILING_ITERATIONS and self._ticks_within_steps
        self._ranks.ask(method, *arguments, within_seconds=HANGS_SECONDS if compiled else STARTS_SECONDS)
        try:
            own = getattr(self._member, method)(*arguments)
        except Exception as error:
            raise self._ranks.why(error) from error
        answers = self._ranks.answers()
        for number in {number for _, signals in answers for number in signals}:
            raise_signal(SIGTERM if number == SIGINT else number)  # a second SIGINT would stop at once
        return [own, *(value for value, _ in answers)]

    def init(self, seed: int) -> None:
        """See `Runner.init`."""
        self.call("init", seed)

    def step(self, state: None) -> tuple[None, Metrics, list[Episode]]:
        """See `Runner.step`."""
        stepped = self.call("step")
        self._steps += 1
        metrics = dict(stepped[0][0])
        metrics["masked_fraction"] = float(np.mean([each["masked_fraction"] for each, _ in stepped]))
        episodes = [episode for _, own in stepped for episode in own]
        return None, metrics, sorted(episodes, key=lambda episode: (episode.step, episode.env))

    def export(self, state: None) -> Arrays:
        """See `Runner.export`."""
        assert self._member is not None
        return joined(declared_arrays(self.problem), self.call("export"))

    def restore(self, arrays: Arrays, carried: bool = False) -> None:
        """See `Runner.restore`."""
        self.call("restore", arrays, carried)

    def in_progress(self, state: None) -> np.ndarray:
        """See `Runner.in_progress`."""
        return np.concatenate(self.call("in_progress"))

    def restart(self, state: None, iteration: int) -> None:
        """See `Runner.restart`."""
        self.call("restart", iteration)

    def close(self) -> None:
        """See `Runner.close`."""
        self._ranks.stop()
        if self._member:
            self._member.close()


def _place(part: Part) -> tuple[Part, list[int]]:
    """Position of this process among those of its machine, and the cores that are its own."""
    told = launched()
    if told is None:
        return part, part_of_cores(part.index, part.count)
    place = Part(told.local_rank, told.local_world_size)
    return place, cores_of_process() if told.own_cores else part_of_cores(place.index, place.count)


def _meet(config: Config, told: Launched | None) -> tuple[Meeting, Any, list[Other]]:
    """Address of rank 0 for the framework, what has to stay referenced, and the other ranks that a launcher started."""
    if told is None:
        port = told_number("MASTER_PORT", 0, MOST_PORT)
        return *config.framework.meet("127.0.0.1", port, config.processes), []
    others = _gathered(told)
    meeting, kept = config.framework.meet(told.host, 0, config.processes)
    for other in others:
        other.connection.send(meeting)
    return meeting, kept, others


def _gathered(told: Launched) -> list[Other]:
    """The other processes that a launcher started, when all have connected to this one."""
    key, server = told.key, listen(told.host, 0 if told.has_store else told.port)
    if told.has_store:
        from ppo_bench.runners.torch_peers import publish

        key = secrets.token_hex(16)
        publish(told, (server.getsockname()[1], key))
    return accept(server, key, told.world_size, told.join_seconds)


def require_launched(config: Config) -> None:
    """Raise `ConfigError` if a launcher has started a number of processes that differs from what `config` asks for."""
    told = launched()
    if told is None:
        return
    if not config.framework.process_per_device and told.has_store and told.world_size > 1:
        raise ConfigError(
            f"framework={config.framework.name} is one process on each machine, whatever devices=: start it without "
            "torchrun"
        )
    if config.processes != told.world_size or config.root.devices % told.world_size:
        raise ConfigError(
            f"{told.world_size} processes were started, and devices={config.root.devices}: add "
            f"devices={told.world_size} and ppo.shards, of which that is a divisor"
        )


def dismiss_ranks() -> None:
    """End the other processes that a launcher started, since there is nothing to train."""
    told = launched()
    assert told is not None
    for other in _gathered(told):
        other.connection.send(None)
        other.connection.close()


def serve_rank(config: Config, rank: int) -> None:
    """Serve rank 0 as one of the other processes that a launcher started, until rank 0 ends."""
    told = launched()
    assert told is not None
    config.framework.begin(tuning=config.tuning, devices=config.devices_here)  # before the framework is imported
    port, key = told.port, told.key
    if told.has_store:
        from ppo_bench.runners.torch_peers import published

        port, key = published(told)
    with connect(rank, told.host, port, key, told.join_seconds) as connection:
        try:
            meeting: Meeting | None = connection.recv()
        except (EOFError, OSError) as error:
            raise Failed("process 0 ended before all others had come") from error
        if meeting is not None:
            serve(connection, lambda ticks: Member(rank, config, meeting, as_made, ticks))
