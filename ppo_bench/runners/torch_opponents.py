"""Pool of earlier parameters for opponents in PyTorch (ppo_bench/runners/opponents.py), one vector per entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.torch import Params, named_views
from ppo_bench.runners.base import Problem
from ppo_bench.runners.opponents import Opponents


@dataclass
class Pool:
    """K earlier parameter vectors, and a copy of the current opponent's at a fixed address, for CUDA graphs."""

    opponents: Opponents
    parameters: tuple[Parameter, ...]
    vectors: Tensor
    """The pool, `[K, P]`."""
    playing: Tensor
    """Parameters of the current opponent, `[P]`."""
    params: Params
    """Views of `playing`, by name."""

    def draw(self, seed: int, iteration: int) -> None:
        """Draw the opponent of an iteration and copy its parameters to `playing`."""
        place = self.opponents.drawn(np, *(np.full(1, value, np.int32) for value in (seed, iteration)))
        self.playing.copy_(self.vectors[int(place[0])])

    def join(self, learnt: Tensor, iteration: int) -> None:
        """Copy the network's part of the `learnt` parameters into the pool, if `Opponents.joins` says so."""
        if self.opponents.joins(iteration):
            self.vectors[self.opponents.place(iteration)].copy_(learnt[: self.vectors.shape[1]])

    def named(self) -> dict[str, Tensor]:
        """The `pool_arrays`, `[K, ...]`, by name."""
        rows = [named_views(vector, self.parameters) for vector in self.vectors]
        return {f"opponents.{p.name}": torch.stack([row[p.name] for row in rows]) for p in self.parameters}


def pool_of(problem: Problem, arrays: Arrays, tensor: Callable[[np.ndarray], Tensor]) -> Pool | None:
    """Pool from the arrays of a training, which `tensor` converts; None if all rows learn."""
    if problem.sides is None:
        return None
    parameters, size = problem.network.parameters, problem.opponents.pool_size
    vectors = tensor(np.concatenate([arrays[f"opponents.{p.name}"].reshape(size, -1) for p in parameters], 1))
    playing = torch.zeros_like(vectors[0])
    return Pool(problem.opponents, parameters, vectors, playing, named_views(playing, parameters))
