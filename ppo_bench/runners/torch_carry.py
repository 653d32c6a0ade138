"""Carry (recurrent state) of a network during a rollout in PyTorch; windows are views of the rollout memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_bench.mathematics.arrays import Tree
from ppo_bench.networks.network import Carry, NetworkSpec
from ppo_bench.networks.torch.ops import Params
from ppo_bench.runners.base import Problem
from ppo_bench.runners.declared import memory_arrays


def allocate(problem: Problem, device: torch.device) -> Params:
    """Rollout memory (`memory_arrays`), filled with zeros."""
    return {
        array.name: torch.zeros(array.shape, dtype=getattr(torch, array.dtype), device=device)
        for array in memory_arrays(problem)
    }


def begin_rollout(network: NetworkSpec, carry: Params, memory: Params) -> None:
    """Copy the carry before the first step into `memory`: windows, and all of it if learning is from sequences."""
    for declared in network.carry:
        kept, before = memory[f"carry.{declared.name}"], carry[declared.name]
        if declared.window:
            kept[: declared.shape[0]].copy_(before.transpose(0, 1))
        elif network.sequences:
            kept.copy_(before)


def remembered(network: NetworkSpec, carry: Params, memory: Params, t: int) -> list[Tensor]:
    """Arrays of the carry before step `t`, `[N, ...]` each, in the order of `network.carry`."""
    return [_window(declared, memory, t) if declared.window else carry[declared.name] for declared in network.carry]


def remember(
    network: NetworkSpec, carry: Params, memory: Params, rows: Sequence[Params], t: int, after: Tree, over: bool
) -> None:
    """Store the carry before step `t` in the memory, if learning reads it per step, and replace it by the one `after`.

    If the rollout is `over`, `after` is ignored, and windows are copied from `memory` to `carry`.
    """
    for declared in network.carry:
        name, before = declared.name, carry[declared.name]
        if declared.window:
            kept = before if over else memory[f"carry.{name}"][t + declared.shape[0]]
            kept.copy_(_window(declared, memory, t) if over else after[name])
            continue
        if not network.sequences:
            rows[t][f"carry.{name}"].copy_(before)
        if not over:
            before.copy_(after[name])


def _window(declared: Carry, memory: Params, t: int) -> Tensor:
    return memory[f"carry.{declared.name}"][t : t + declared.shape[0]].transpose(0, 1)
