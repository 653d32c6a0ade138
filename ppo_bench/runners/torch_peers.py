"""The processes that share a training in PyTorch: NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.parts import Part

TIMEOUT = timedelta(minutes=30)
"""What a rank waits for the others at most; who watches them is there sooner (ppo_bench/common/ranks.py)."""


class TorchPeers:
    """The other processes of a training, see `ppo_bench.runners.base.Peers`."""

    def __init__(self, part: Part, address: tuple[str, int], tick: Callable[[], None]) -> None:
        """Meet the others at the TCP store that rank 0 has at `address`."""
        self.part, self.tick = part, tick
        host, port = address
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = TCPStore(host, port, part.count, is_master=False, timeout=TIMEOUT)
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

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()


def open_store(count: int, port: int = 0) -> TCPStore:
    """The store at which `count` processes of this machine meet; rank 0 keeps it. Port 0 takes a free one."""
    return TCPStore("127.0.0.1", port, count, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
