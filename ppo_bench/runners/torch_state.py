"""State of a learner in PyTorch, with the rollout buffer and the network's carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.shards import Shard
from ppo_bench.networks.network import CarrySpec, NetworkSpec
from ppo_bench.networks.torch.ops import Params
from ppo_bench.runners.array_specs import rollout_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.torch_adam import Adam


def allocate(spec: TrainingSpec, device: torch.device) -> Params:
    """Rollout buffer (`rollout_array_specs`), filled with zeros."""
    return {
        array.name: torch.zeros(array.shape, dtype=getattr(torch, array.dtype), device=device)
        for array in rollout_array_specs(spec)
    }


@dataclass
class TorchTrainState:
    """State of the learner between two calls; recorded CUDA graphs refer to its tensors by address."""

    network: NetworkSpec
    flat_params: Tensor
    """All trained parameters as a vector, `[P]`."""
    arrays: Params
    """Parameters (views of `flat_params`) and frozen arrays, by name."""
    frozen: Params
    adam: Adam
    statistics: Params
    """Statistics of the algorithm."""
    carry: Params
    """Carry (recurrent state) of the network, `[N, ...]`; during a rollout `carry_before_step` has its windows."""
    rollout_buffer: Params
    """Rollout buffer; see `rollout_array_specs`."""
    rows: list[Params]
    """Views `[N, ...]` of the buffer for each step, by name."""
    noise: tuple[Tensor, ...] = ()
    """Action noise `[N, A]` of each step of this iteration."""

    def part(self, shard: Shard, env_axes: Mapping[str, int]) -> TorchTrainState:
        """The state of some of the environments, as views; `env_axes` are those of the rollout buffer, by name."""

        def own(x: Tensor, axis: int = 0) -> Tensor:
            return x.narrow(axis, shard.first(x.shape[axis]), shard.size(x.shape[axis]))

        return replace(
            self,
            carry={name: own(x) for name, x in self.carry.items()},
            rollout_buffer={name: own(x, env_axes[name]) for name, x in self.rollout_buffer.items()},
            rows=[{name: own(x) for name, x in row.items()} for row in self.rows],
            noise=tuple(map(own, self.noise)),
        )

    def store_initial_carry(self) -> None:
        """Copy the carry before step 0 into the buffer: windows, and all of it if learning is from sequences."""
        for array in self.network.carry:
            target, before = self.rollout_buffer[f"carry.{array.name}"], self.carry[array.name]
            if array.window:
                target[: array.shape[0]].copy_(before.transpose(0, 1))
            elif self.network.learns_from_sequences:
                target.copy_(before)

    def carry_before_step(self, t: int) -> list[Tensor]:
        """Arrays of the carry before step `t`, `[N, ...]` each, in the order of `network.carry`."""
        return [self._window(array, t) if array.window else self.carry[array.name] for array in self.network.carry]

    def store_carry(self, t: int, after: Tree) -> None:
        """Store the carry before step `t` in the buffer, if learning reads it per step, and replace it by `after`.

        After the last step the rollout is over: `after` is ignored, and windows are copied from the buffer.
        """
        over = t == len(self.rows) - 1
        for array in self.network.carry:
            name, before = array.name, self.carry[array.name]
            if array.window:
                target = before if over else self.rollout_buffer[f"carry.{name}"][t + array.shape[0]]
                target.copy_(self._window(array, t) if over else after[name])
                continue
            if not self.network.learns_from_sequences:
                self.rows[t][f"carry.{name}"].copy_(before)
            if not over:
                before.copy_(after[name])

    def _window(self, array: CarrySpec, t: int) -> Tensor:
        return self.rollout_buffer[f"carry.{array.name}"][t : t + array.shape[0]].transpose(0, 1)
