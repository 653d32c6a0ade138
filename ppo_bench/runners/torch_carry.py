"""Carry (recurrent state) of a network during a rollout in PyTorch; windows are views of the rollout buffer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_bench.mathematics.arrays import Tree
from ppo_bench.networks.network import CarrySpec, NetworkSpec
from ppo_bench.networks.torch.ops import Params
from ppo_bench.runners.array_specs import rollout_array_specs
from ppo_bench.runners.base import TrainingSpec


def allocate(spec: TrainingSpec, device: torch.device) -> Params:
    """Rollout buffer (`rollout_array_specs`), filled with zeros."""
    return {
        array.name: torch.zeros(array.shape, dtype=getattr(torch, array.dtype), device=device)
        for array in rollout_array_specs(spec)
    }


def store_initial_carry(network: NetworkSpec, carry: Params, rollout_buffer: Params) -> None:
    """Copy the carry before step 0 into `rollout_buffer`: windows, and all of it if learning is from sequences."""
    for array in network.carry:
        target, before = rollout_buffer[f"carry.{array.name}"], carry[array.name]
        if array.window:
            target[: array.shape[0]].copy_(before.transpose(0, 1))
        elif network.learns_from_sequences:
            target.copy_(before)


def carry_before_step(network: NetworkSpec, carry: Params, rollout_buffer: Params, t: int) -> list[Tensor]:
    """Arrays of the carry before step `t`, `[N, ...]` each, in the order of `network.carry`."""
    return [_window(array, rollout_buffer, t) if array.window else carry[array.name] for array in network.carry]


def store_carry(
    network: NetworkSpec, carry: Params, rollout_buffer: Params, rows: Sequence[Params], t: int, after: Tree, over: bool
) -> None:
    """Store the carry before step `t` in the buffer, if learning reads it per step, and replace it by the one `after`.

    If the rollout is `over`, `after` is ignored, and windows are copied from `rollout_buffer` to `carry`.
    """
    for array in network.carry:
        name, before = array.name, carry[array.name]
        if array.window:
            target = before if over else rollout_buffer[f"carry.{name}"][t + array.shape[0]]
            target.copy_(_window(array, rollout_buffer, t) if over else after[name])
            continue
        if not network.learns_from_sequences:
            rows[t][f"carry.{name}"].copy_(before)
        if not over:
            before.copy_(after[name])


def _window(array: CarrySpec, rollout_buffer: Params, t: int) -> Tensor:
    return rollout_buffer[f"carry.{array.name}"][t : t + array.shape[0]].transpose(0, 1)
