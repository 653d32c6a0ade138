"""A training shared by several processes (ranks), each with a part of the environments: one for each device or machine.

Every rank runs the outer loop of ppo_bench/runs/loop.py on its part; rank 0 alone has the run's folder.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, FailedRuns, RankLostError, RunError, RunInterrupted, one_line
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.groups import make_grouped_env
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.shards import SINGLE_SHARD, ProcessGroup, Shard, concatenate_shards, slice_shard
from ppo_bench.runners.array_specs import array_specs
from ppo_bench.runners.base import Episode, Metrics, Runner, TrainingSpec
from ppo_bench.runners.episodes import join_episodes
from ppo_bench.tuning.cores import available_cores, cpu_affinity, shard_of_cores

EnvWrapper = Callable[[VectorEnv | GraphEnv, Shard], Any]
"""Function that wraps the environments of a rank."""


@contextmanager
def detect_lost_rank() -> Iterator[None]:
    """A context in which a collective operation that fails raises `RankLostError`: another rank has ended or hangs."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # PyTorch and JAX raise no class of their own
        said = str(error)
        if not any(library in said for library in ("gloo", "Gloo", "NCCL")):
            raise
        raise RankLostError(f"another process of the training has ended or hangs ({one_line(said)[:200]})") from error


class DistributedRunner:
    """The runner of a rank. All ranks call its methods in the same order; what they return is that of all ranks."""

    def __init__(self, config: Config, wrap: EnvWrapper | None = None) -> None:
        """Join the other ranks, and make this one's part of the environments and its runner."""
        rank_info = read_rank_info()
        assert rank_info is not None
        shard = Shard(rank_info.rank, rank_info.world_size)
        local_shard = Shard(rank_info.local_rank, rank_info.local_world_size)
        own = rank_info.own_cores
        cores = available_cores() if own else shard_of_cores(local_shard.index, local_shard.count)
        with ExitStack() as stack, cpu_affinity(cores):  # of the threads that are started meanwhile
            config.framework.configure_process(tuning=config.tuning, devices=config.devices_here)
            self.process_group: ProcessGroup = config.framework.init_process_group(
                rank_info, config.root.collective_timeout_seconds
            )
            task = replace(config.task, num_envs=shard.size(config.ppo.num_envs))
            made = make_env(config.backend, task)
            stack.callback(made.close)
            self.env = wrap(made, shard) if wrap else made
            spec = config.training_spec(self.env)
            self.spec: TrainingSpec = replace(
                spec, shard=shard, process_group=self.process_group, local_shard=local_shard
            )
            self._local_runner: Runner[Any] = config.framework.runner(self.spec)
            stack.pop_all()
        self.execution: Mapping[str, object] = self._local_runner.execution
        self._array_specs = array_specs(self.spec)
        self._sharded_names = {array.name for array in self._array_specs if array.env_axis is not None}

    def init(self, seed: int) -> Any:
        """See `Runner.init`."""
        with detect_lost_rank():
            return self._local_runner.init(seed)

    def iterate(self, state: Any, until: int = 0) -> tuple[Any, Metrics, list[Episode]]:
        """See `Runner.iterate`. The devices wait for the hosts, which exchange episodes after each iteration."""
        with detect_lost_rank():
            try:
                state, metrics, own = self._local_runner.iterate(state)
            except FailedRuns as error:  # of this rank's environments: the others do not know
                raise RunError(str(error)) from error
        together = all_gather_object(self.process_group, (metrics["masked_fraction"], own))
        metrics = metrics | {"masked_fraction": float(np.mean([masked for masked, _ in together]))}
        return state, metrics, join_episodes([part for _, part in together], self.spec.num_envs)

    def export(self, state: Any) -> Arrays:
        """See `Runner.export`."""
        own = self._local_runner.export(state)
        parts = all_gather_object(self.process_group, {name: own[name] for name in own.keys() & self._sharded_names})
        return own | concatenate_shards(self._array_specs, parts)

    def restore(self, arrays: Arrays, restore_envs: bool = False) -> Any:
        """See `Runner.restore`."""
        own = slice_shard(self._array_specs, arrays, self.spec.shard)
        with detect_lost_rank():  # the ranks combine the moments of their first observations
            return self._local_runner.restore(own, restore_envs)

    def restart_envs(self, state: Any) -> Any:
        """See `Runner.restart_envs`."""
        with detect_lost_rank():
            return self._local_runner.restart_envs(state)

    def close(self) -> None:
        """See `Runner.close`."""
        self._local_runner.close()
        del self._local_runner
        gc.unfreeze()
        gc.collect()  # CUDA graphs, since NCCL waits until none holds its communicator
        error = sys.exception()
        # If this rank alone fails, the others must not fail before it has said why.
        if error is None or isinstance(error, RunInterrupted | FailedRuns):
            self.process_group.close()


def build_runner(config: Config, make_runner: Any, wrap: EnvWrapper | None = None) -> tuple[Any, Any]:
    """The runner of this process, which trains alone or is a rank, and its environments, wrapped by `wrap`.

    `make_runner` makes the runner of a process that trains alone from its `TrainingSpec`. Raises `ConfigError` if the
    environment or the device is not available.
    """
    if config.processes > 1:
        runner = DistributedRunner(config, wrap)
        return runner, runner.env
    config.framework.configure_process(len(config.of_each_run()), config.tuning, config.devices_here)
    groups = config.num_groups
    env: Any = (
        make_env(config.backend, config.task) if groups == 1 else make_grouped_env(config.backend, config.task, groups)
    )
    try:
        env = wrap(env, SINGLE_SHARD) if wrap else env
        return make_runner(config.training_spec(env)), env
    except BaseException:
        env.close()
        raise


def all_gather_object(process_group: ProcessGroup | None, value: Any) -> list[Any]:
    """The picklable values of all ranks, in their order; that of this process where it trains alone."""
    with detect_lost_rank():
        return process_group.all_gather_object(value) if process_group else [value]


def require_world_size(config: Config) -> None:
    """Raise `ConfigError` if a launcher has started a number of processes that differs from what `config` asks for."""
    rank_info = read_rank_info()
    if rank_info is None:
        return
    if config.processes != rank_info.world_size or config.root.devices % rank_info.world_size:
        raise ConfigError(
            f"{rank_info.world_size} processes were started, and devices={config.root.devices}: add "
            f"devices={rank_info.world_size} and ppo.shards, of which that is a divisor"
        )
