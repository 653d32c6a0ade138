"""Equal parts of the environments, arrays cut and joined along them, and the processes that have one each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ppo_bench.mathematics.arrays import Arrays, ArraySpec
from ppo_bench.mathematics.normalize import Moments


@dataclass(frozen=True)
class Shard:
    """One of `count` equal, consecutive parts of the environments: those that one process steps and learns from."""

    index: int = 0
    count: int = 1

    def size(self, total: int) -> int:
        """Number of rows of this part, of `total` rows; `count` divides `total`."""
        return total // self.count

    def first(self, total: int) -> int:
        """Index of the first of them."""
        return self.index * self.size(total)

    def slice(self, array: np.ndarray, axis: int) -> np.ndarray:
        """A view of this part of `array` along `axis`."""
        total = array.shape[axis]
        return np.moveaxis(np.moveaxis(array, axis, 0)[self.first(total) :][: self.size(total)], 0, axis)


SINGLE_SHARD = Shard()
"""All environments."""


def slice_shard(specs: Iterable[ArraySpec], arrays: Arrays, shard: Shard) -> Arrays:
    """`arrays`, with this part alone of those that are declared to lie along the environments."""
    axes = _env_axes(specs)
    return {name: shard.slice(array, axes[name]) if name in axes else array for name, array in arrays.items()}


def concatenate_shards(specs: Iterable[ArraySpec], parts: Sequence[Arrays]) -> Arrays:
    """The arrays of all environments, from those of their `parts` in order; the first's where all have the same."""
    axes = _env_axes(specs)
    return {
        name: np.concatenate([part[name] for part in parts], axes[name]) if name in axes else array
        for name, array in parts[0].items()
    }


def _env_axes(specs: Iterable[ArraySpec]) -> dict[str, int]:
    return {array.name: array.env_axis for array in specs if array.env_axis is not None}


class ProcessGroup(Protocol):
    """Collective operations between the processes that share a training, each with a part of its environments."""

    def all_gather(self, x: Any) -> Any:
        """A framework's array from every process, stacked along a new first axis in the order of the processes."""

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """Moments of the entries of all processes, from those of this process's; NumPy arrays."""

    def all_gather_object(self, value: Any) -> list[Any]:
        """The picklable values of all processes, in their order."""

    def close(self) -> None:
        """Leave the group of processes."""
