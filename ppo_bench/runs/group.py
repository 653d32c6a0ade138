"""A training shared by several processes (ranks), each with a part of the environments: one for each device or machine.

Every rank runs the outer loop of ppo_bench/runs/train.py on its part; rank 0 alone has the run's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, FailedRuns, Interrupted, Lost, one_line
from ppo_bench.common.launched import Launched, launched
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.parts import Part, cut, joined
from ppo_bench.runners.base import Episode, Metrics, Peers, Problem, Runner
from ppo_bench.runners.declared import declared_arrays
from ppo_bench.tuning.cores import cores_of_process, keep_to_cores, part_of_cores

Wrap = Callable[[VectorEnv | GraphEnv, Part], Any]
"""Function that wraps the environments of a rank."""


def as_made(env: VectorEnv | GraphEnv, part: Part) -> VectorEnv | GraphEnv:
    """The environments, unchanged."""
    return env


@contextmanager
def naming_losses() -> Iterator[None]:
    """A context in which a collective operation that fails raises `Lost`: another rank has ended or hangs."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # PyTorch and JAX raise no class of their own
        said = str(error)
        if not any(library in said for library in ("gloo", "Gloo", "NCCL")):
            raise
        raise Lost(f"another process of the training has ended or hangs ({one_line(said)[:200]})") from error


class SharedRunner:
    """The runner of a rank. All ranks call its methods in the same order; what they return is that of all ranks."""

    def __init__(self, config: Config, wrap: Wrap = as_made, ppo: Any = None) -> None:
        """Join the other ranks, and make this one's part of the environments and its runner."""
        told = launched()
        assert told is not None
        part = Part(told.rank, told.world_size)
        place, cores = _place(told)
        with ExitStack() as stack:
            stack.enter_context(keep_to_cores(cores))
            config.framework.begin(tuning=config.tuning, devices=config.devices_here)
            self.peers: Peers = config.framework.join(told, config.root.collective_timeout_seconds)
            task = replace(config.task, num_envs=part.size(config.ppo.num_envs))
            made = make_env(config.backend, task)
            stack.callback(made.close)
            self.env = wrap(made, part)
            problem = replace(config.problem(self.env), ppo=ppo or config.ppo)
            self.problem: Problem = replace(problem, part=part, peers=self.peers, place=place)
            self._own: Runner[Any] = config.framework.runner(self.problem)
            stack.pop_all()
        self.execution: Mapping[str, object] = self._own.execution
        self._declared = declared_arrays(self.problem)
        self._divided = {array.name for array in self._declared if array.env_axis is not None}

    def init(self, seed: int) -> Any:
        """See `Runner.init`."""
        with naming_losses():
            return self._own.init(seed)

    def step(self, state: Any) -> tuple[Any, Metrics, list[Episode]]:
        """See `Runner.step`."""
        with naming_losses():
            state, metrics, own = self._own.step(state)
        first, count = self.problem.first_env, self.problem.part.count
        episodes = [e._replace(env=first + e.env, step=e.step * count) for e in own]
        together = shared(self.peers, (metrics["masked_fraction"], episodes))
        metrics = metrics | {"masked_fraction": float(np.mean([masked for masked, _ in together]))}
        return state, metrics, sorted((e for _, part in together for e in part), key=lambda e: (e.step, e.env))

    def export(self, state: Any) -> Arrays:
        """See `Runner.export`."""
        own = self._own.export(state)
        parts = shared(self.peers, {name: own[name] for name in own.keys() & self._divided})
        return own | joined(self._declared, parts)

    def restore(self, arrays: Arrays, carried: bool = False) -> Any:
        """See `Runner.restore`."""
        return self._own.restore(cut(self._declared, arrays, self.problem.part), carried)

    def in_progress(self, state: Any) -> np.ndarray:
        """See `Runner.in_progress`."""
        return np.concatenate(shared(self.peers, self._own.in_progress(state)))

    def restart(self, state: Any, iteration: int) -> Any:
        """See `Runner.restart`."""
        return self._own.restart(state, iteration)

    def close(self) -> None:
        """See `Runner.close`."""
        self._own.close()
        error = sys.exception()
        # If this rank alone fails, the others must not fail before it has said why.
        if error is None or isinstance(error, Interrupted | FailedRuns):
            self.peers.close()


def _place(told: Launched) -> tuple[Part, list[int]]:
    """Position of this rank among those of its machine, and the cores that are its own."""
    place = Part(told.local_rank, told.local_world_size)
    return place, cores_of_process() if told.own_cores else part_of_cores(place.index, place.count)


def shared(peers: Peers | None, value: Any) -> list[Any]:
    """The picklable values of all ranks, in their order; that of this process where it trains alone."""
    with naming_losses():
        return peers.share(value) if peers else [value]


def require_launched(config: Config) -> None:
    """Raise `ConfigError` if a launcher has started a number of processes that differs from what `config` asks for."""
    told = launched()
    if told is None:
        return
    if config.processes != told.world_size or config.root.devices % told.world_size:
        raise ConfigError(
            f"{told.world_size} processes were started, and devices={config.root.devices}: add "
            f"devices={told.world_size} and ppo.shards, of which that is a divisor"
        )
