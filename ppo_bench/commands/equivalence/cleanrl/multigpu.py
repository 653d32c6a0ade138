"""Patches of ppo_atari_multigpu.py alone, whose processes share a training."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from ppo_bench.commands.equivalence.cleanrl.script import patch
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.common.rank_info import STORE


def install(script: TorchScript) -> None:
    """Weight gradients, and end an iteration with its last step of Adam in a process that does not log."""

    @patch(dist, "init_process_group")
    def init_process_group(original: Any, backend: str, **options: Any) -> None:
        original(backend, init_method=f"file://{os.environ[STORE]}", **options)

    @patch(dist, "all_reduce")
    def all_reduce(original: Any, gradient: torch.Tensor, op: Any) -> None:
        count = torch.tensor(float(len(script.variables["mb_inds"])))
        total = count.clone()
        original(total)
        script.weight = float(script.part.count * count / total)
        if script.weight != 1 and script.uses("rank-weights"):
            gradient *= script.weight
        original(gradient, op=op)

    if script.part.index > 0:
        script.end_with_last_minibatch()
