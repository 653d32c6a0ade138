"""The processes that share a training in PyTorch: NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.parts import Part

TIMEOUT = timedelta(minutes=30)
"""What a rank waits for the others at most; who watches them is there sooner (ppo_bench/common/ranks.py)."""


class TorchPeers:
    """The other processes of a training, see `ppo_bench.runners.base.Peers`."""

    def __init__(self, part: Part, meeting: Meeting, tick: Callable[[], None]) -> None:
        """Meet the others."""
        self.part, self.tick = part, tick
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = PrefixStore(f"group/{meeting.attempt}", _client(meeting, part.count))
        dist.init_process_group(backend, store=store, rank=part.index, world_size=part.count, timeout=TIMEOUT)

    def total(self, x: Tensor) -> Tensor:
        """The sum of `x` over the processes, the same bits in each."""
        if torch.compiler.is_compiling():  # as an operation that a compiler can trace
            from torch.distributed._functional_collectives import all_reduce, wait_tensor

            assert dist.group.WORLD is not None
            summed: Tensor = wait_tensor(all_reduce(x, "sum", dist.group.WORLD))
            return summed
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    def gather(self, x: Tensor) -> Tensor:
        """`x` of every process, stacked in their order."""
        x = x.contiguous()
        rows = [torch.empty_like(x) for _ in range(self.part.count)]
        dist.all_gather(rows, x)
        return torch.stack(rows)

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all processes, arrays of NumPy, from those of this one's."""
        return pooled(np, seen, self._gathered)

    def _gathered(self, x: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self.gather(torch.from_numpy(x)).numpy()
        return rows

    def seconds_of_total(self, size: int, repetitions: int) -> float:
        """Duration of a sum of `size` numbers, the mean of several."""
        x = torch.ones(size, device="cuda" if torch.cuda.is_available() else "cpu")
        self.total(x)
        started = time.perf_counter()
        for _ in range(repetitions):
            last = self.total(x)
        last[0].item()  # waits for a GPU
        return (time.perf_counter() - started) / repetitions

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()


class Meeting(NamedTuple):
    """Where the processes meet: a TCP store of PyTorch's."""

    host: str
    port: int
    attempt: str = "0"
    """Of several attempts to meet there, such as those of torchrun, which one."""


def open_store(host: str, port: int, count: int) -> TCPStore:
    """The store of rank 0 at which `count` processes meet; port 0 takes a free one.

    Raises `ConfigError` if the port is in use.
    """
    try:
        return TCPStore(host, port, count, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
    except (RuntimeError, OSError) as error:
        if "address already in use" not in str(error).lower():
            raise
        raise ConfigError(f"port {port} of {host} is in use: choose another by MASTER_PORT=..., or none") from error


def tell(meeting: Meeting, count: int, told: dict[str, Any]) -> None:
    """Leave for the other ranks what they need to connect to rank 0."""
    _client(meeting, count).set(f"control/{meeting.attempt}", json.dumps(told))


def hear(meeting: Meeting, rank: int, count: int) -> dict[str, Any] | None:
    """What rank 0 left there, once it has; None if there is nothing to do."""
    store = _client(meeting, count)
    told: dict[str, Any] | None = json.loads(store.get(f"control/{meeting.attempt}"))
    if told is None:
        store.set(f"dismissed/{meeting.attempt}/{rank}", "")
    return told


def dismiss(meeting: Meeting, count: int) -> None:
    """Tell the other ranks that there is nothing to do; returns once they know."""
    store = _client(meeting, count)
    store.set(f"control/{meeting.attempt}", json.dumps(None))
    store.wait([f"dismissed/{meeting.attempt}/{rank}" for rank in range(1, count)], timedelta(minutes=2))


def _client(meeting: Meeting, count: int) -> TCPStore:
    return TCPStore(meeting.host, meeting.port, count, is_master=False, timeout=TIMEOUT)
