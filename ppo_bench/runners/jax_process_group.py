"""Collective operations between the processes of a training in JAX, one on each machine; gloo between CPUs."""

from __future__ import annotations

import errno
import pickle
import socket
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.rank_info import RankInfo
from ppo_bench.mathematics.normalize import Moments, pool_moments


class JaxProcessGroup:
    """Implementation of `ppo_bench.mathematics.shards.ProcessGroup` by `jax.distributed`, for arrays on the host."""

    def __init__(self, rank_info: RankInfo, timeout_seconds: float) -> None:
        """Join the processes; to be called before JAX sees its devices, which are then those of all processes.

        JAX ends a process by SIGABRT if another of them is silent for 100 seconds. Raises `ConfigError` if the port is
        in use.
        """
        if rank_info.rank == 0:
            _require_free_port(rank_info.address)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # It would replace this process's handler of SIGTERM (ppo_bench/common/stopping.py).
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(
            rank_info.address,
            rank_info.world_size,
            rank_info.rank,
            cluster_detection_method="deactivate",  # under SLURM it would take one GPU for each process
            initialization_timeout=int(timeout_seconds),
            coordinator_bind_address=rank_info.address,
        )

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        """`x` from every process, stacked along a new first axis in the order of the processes."""
        with jax.enable_x64(True):
            return np.asarray(process_allgather(x))

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """Moments of the entries of all processes, from those of this process's; NumPy arrays."""
        return pool_moments(np, Moments(*map(np.asarray, batch_moments)), self.all_gather)

    def all_gather_object(self, value: Any) -> list[Any]:
        """The picklable values of all processes, in their order."""
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self.all_gather(np.array(own.size))
        length = 1 << int(sizes.max()).bit_length()  # few lengths, since JAX compiles a program for each
        padded = self.all_gather(np.pad(own, (0, length - own.size)))
        return [pickle.loads(each[:size].tobytes()) for each, size in zip(padded, sizes, strict=True)]

    def close(self) -> None:
        """Leave the group of processes, once all do."""
        jax.distributed.shutdown()


def _require_free_port(address: str) -> None:
    """Raise `ConfigError` if the port is in use; JAX itself would crash."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_server((host, int(port))).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ConfigError(f"{address} is in use: choose another port by MASTER_PORT=...") from error
