"""Collective operations between the processes of a training in PyTorch: NCCL for GPU tensors, gloo for CPU tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # documented, but re-exported implicitly

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.launched import Launched
from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.parts import Part
from ppo_bench.runners.base import Meeting

TIMEOUT = timedelta(minutes=30)
"""Maximum time that a rank waits for the others; rank 0 detects a failure sooner (ppo_bench/common/ranks.py)."""


class TorchPeers:
    """Implementation of `ppo_bench.runners.base.Peers` by `torch.distributed`."""

    def __init__(self, part: Part, meeting: Meeting, tick: Callable[[], None]) -> None:
        """Join the process group; waits for the other processes."""
        self.part, self.tick = part, tick
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = PrefixStore("group", _client(meeting, part.count))
        dist.init_process_group(backend, store=store, rank=part.index, world_size=part.count, timeout=TIMEOUT)

    def total(self, x: Tensor) -> Tensor:
        """Sum of `x` over the processes; bitwise equal in all of them."""
        if torch.compiler.is_compiling():  # the functional form can be traced
            from torch.distributed._functional_collectives import all_reduce, wait_tensor

            assert dist.group.WORLD is not None
            summed: Tensor = wait_tensor(all_reduce(x, "sum", dist.group.WORLD))
            return summed
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    def gather(self, x: Tensor) -> Tensor:
        """`x` from every process, stacked along a new first axis in the order of the processes."""
        x = x.contiguous()
        rows = [torch.empty_like(x) for _ in range(self.part.count)]
        dist.all_gather(rows, x)
        return torch.stack(rows)

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all processes, from the moments `seen` of this one's; NumPy arrays."""
        return pooled(np, seen, self._gathered)

    def _gathered(self, x: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self.gather(torch.from_numpy(x)).numpy()
        return rows

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


def open_store(host: str, port: int, count: int) -> TCPStore:
    """TCP store of rank 0 for `count` processes; port 0 means a free port.

    Raises `ConfigError` if the port is in use.
    """
    try:
        return TCPStore(host, port, count, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
    except (RuntimeError, OSError) as error:
        if "address already in use" not in str(error).lower():
            raise
        raise ConfigError(f"port {port} of {host} is in use: choose another by MASTER_PORT=..., or none") from error


def publish(told: Launched, address: tuple[int, str]) -> None:
    """Publish the port and the key of rank 0's listener in the launcher's store."""
    _store_of(told).set(f"ppo_bench/{told.attempt}", json.dumps(address))


def published(told: Launched) -> tuple[int, str]:
    """The port and the key that rank 0 has published; waits for them."""
    port, key = json.loads(_store_of(told).get(f"ppo_bench/{told.attempt}"))
    return port, key


def _store_of(told: Launched) -> TCPStore:
    return _client(Meeting(told.host, told.port), told.world_size)


def _client(meeting: Meeting, count: int) -> TCPStore:
    return TCPStore(meeting.host, meeting.port, count, is_master=False, timeout=TIMEOUT)
