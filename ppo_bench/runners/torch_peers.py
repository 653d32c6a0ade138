"""Collective operations between the processes of a training in PyTorch: NCCL for GPU tensors, gloo for CPU tensors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.launched import Launched
from ppo_bench.mathematics.normalize import Moments, pooled


class TorchPeers:
    """Implementation of `ppo_bench.runners.base.Peers` by `torch.distributed`."""

    def __init__(self, told: Launched, timeout_seconds: float) -> None:
        """Join the process group; waits for the other processes.

        Raises `ConfigError` if the port is in use, and `Failed` if not all have come in time.
        """
        self._count = told.world_size
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                init_method=f"file://{told.store}" if told.store else "env://",
                rank=told.rank,
                world_size=told.world_size,
                timeout=timedelta(seconds=timeout_seconds),
            )
        except dist.DistNetworkError as error:
            if "EADDRINUSE" not in str(error):
                raise
            raise ConfigError(f"{told.address} is in use: choose another port by MASTER_PORT=...") from error
        except dist.DistStoreError as error:
            raise Failed(f"not all {told.world_size} processes came within {timeout_seconds:g} seconds") from error

    def total(self, x: Tensor) -> Tensor:
        """Sum of `x` over the processes; bitwise equal in all of them."""
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    def gather(self, x: Tensor) -> Tensor:
        """`x` from every process, stacked along a new first axis in the order of the processes."""
        x = x.contiguous()
        rows = [torch.empty_like(x) for _ in range(self._count)]
        dist.all_gather(rows, x)
        return torch.stack(rows)

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all processes, from the moments `seen` of this one's; NumPy arrays."""
        return pooled(np, seen, lambda x: self.gather(torch.from_numpy(x)).numpy())

    def share(self, value: Any) -> list[Any]:
        """The picklable values of all processes, in their order."""
        values = [None] * self._count
        dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
