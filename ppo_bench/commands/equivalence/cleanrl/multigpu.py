"""Patches of ppo_atari_multigpu.py alone, whose processes share a training."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript


def install(script: TorchScript) -> None:
    """Weight gradients, and end an iteration with its last step of Adam in a process that does not log."""
    own_reduce, ranks = dist.all_reduce, script.part.count

    def all_reduce(gradient: torch.Tensor, op: Any) -> None:
        own = script.own
        count = torch.tensor(float(len(own["mb_inds"])))
        total = count.clone()
        own_reduce(total)
        script.weight = float(ranks * count / total)
        if script.weight != 1 and script.uses("rank-weights"):
            gradient *= script.weight
        own_reduce(gradient, op=op)

    dist.all_reduce = all_reduce  # type: ignore[assignment]
    if script.part.index > 0:
        script.end_with_last_minibatch()
