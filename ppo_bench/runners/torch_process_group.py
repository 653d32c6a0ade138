"""Collective operations between the processes of a training in PyTorch: NCCL for GPU tensors, gloo for CPU tensors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.common.rank_info import RankInfo
from ppo_bench.mathematics.normalize import Moments, pool_moments


class TorchProcessGroup:
    """Implementation of `ppo_bench.mathematics.shards.ProcessGroup` by `torch.distributed`."""

    def __init__(self, rank_info: RankInfo, timeout_seconds: float) -> None:
        """Join the process group; waits for the other processes.

        Raises `ConfigError` if the port is in use, and `RunError` if not all have come in time.
        """
        self._count = rank_info.world_size
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                init_method=f"file://{rank_info.store}" if rank_info.store else "env://",
                rank=rank_info.rank,
                world_size=rank_info.world_size,
                timeout=timedelta(seconds=timeout_seconds),
            )
        except dist.DistNetworkError as error:
            if "EADDRINUSE" not in str(error):
                raise
            raise ConfigError(f"{rank_info.address} is in use: choose another port by MASTER_PORT=...") from error
        except dist.DistStoreError as error:
            raise RunError(
                f"not all {rank_info.world_size} processes came within {timeout_seconds:g} seconds"
            ) from error

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """Sum of `x` over the processes; bitwise equal in all of them."""
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    def all_gather(self, x: Tensor) -> Tensor:
        """`x` from every process, stacked along a new first axis in the order of the processes."""
        x = x.contiguous()
        rows = [torch.empty_like(x) for _ in range(self._count)]
        dist.all_gather(rows, x)
        return torch.stack(rows)

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """Moments of the entries of all processes, from those of this process's; NumPy arrays."""
        return pool_moments(np, batch_moments, lambda x: self.all_gather(torch.from_numpy(x)).numpy())

    def all_gather_object(self, value: Any) -> list[Any]:
        """The picklable values of all processes, in their order."""
        values = [None] * self._count
        dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
