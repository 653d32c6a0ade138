"""Collective operations between the processes of a training in JAX, one on each machine; gloo between CPUs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.parts import Part
from ppo_bench.runners.base import Meeting

JOINS_SECONDS = 120
"""Maximum time to join, in seconds; all processes have already been there when the address was told."""


class JaxPeers:
    """Implementation of `ppo_bench.runners.base.Peers` by `jax.distributed`, for arrays on the host."""

    def __init__(self, part: Part, meeting: Meeting, tick: Callable[[], None]) -> None:
        """Join the processes; to be called before JAX sees its devices, which are then those of all processes."""
        self.part, self.tick = part, tick
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # Otherwise JAX aborts all processes when one ends early; here rank 0 decides (ppo_bench/common/ranks.py).
        jax.config.update("jax_enable_recoverability", True)
        # It would replace this process's handler of SIGTERM (ppo_bench/common/rank_processes.py).
        jax.config.update("jax_enable_preemption_service", False)
        address = f"{meeting.host}:{meeting.port}"
        jax.distributed.initialize(
            address,
            part.count,
            part.index,
            cluster_detection_method="deactivate",  # under SLURM it would take one GPU for each process
            initialization_timeout=JOINS_SECONDS,
            coordinator_bind_address=address,
        )
        firsts = [next(one for one in jax.devices() if one.process_index == index) for index in range(part.count)]
        mesh = Mesh(np.array(firsts), ("processes",))
        self._parts, whole = NamedSharding(mesh, Spec("processes")), NamedSharding(mesh, Spec())
        self._gather = jax.jit(lambda x: x, out_shardings=whole)

    def total(self, x: np.ndarray) -> np.ndarray:
        """Sum of `x` over the processes."""
        summed: np.ndarray = self.gather(x).sum(0)
        return summed

    def gather(self, x: np.ndarray) -> np.ndarray:
        """`x` from every process, stacked along a new first axis in the order of the processes."""
        with jax.enable_x64(True):
            return np.asarray(self._gather(jax.make_array_from_process_local_data(self._parts, x[None])))

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all processes, from the moments `seen` of this one's; NumPy arrays."""
        return pooled(np, Moments(*map(np.asarray, seen)), self.gather)

    def close(self) -> None:
        """Leave the group of processes."""
        jax.distributed.shutdown()
