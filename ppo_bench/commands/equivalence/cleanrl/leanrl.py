"""Patches of LeanRL's scripts alone, which have functions where CleanRL's have loops."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from ppo_bench.commands.equivalence.cleanrl.randomness import ActionNoise, Order
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript


def install(script: TorchScript) -> None:
    """Replace noise and permutations, and end an iteration with its last step of Adam, since few are logged."""
    wandb: Any = types.ModuleType("wandb")
    wandb.init = lambda **_: script.used.add("wandb")
    wandb.log = lambda *_, **__: None
    sys.modules["wandb"] = wandb
    action_noise, own_like = ActionNoise(script), torch.randn_like

    def randn_like(x: torch.Tensor) -> torch.Tensor:
        return action_noise.now() if script.variables else own_like(x)

    def randperm(size: int, device: Any) -> Any:
        return Order(script, size)

    torch.randn_like, torch.randperm = randn_like, randperm  # type: ignore[assignment]
    script.end_with_last_minibatch()
