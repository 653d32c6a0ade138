"""Patches of LeanRL's scripts alone, which have functions where CleanRL's have loops."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.against import pools
from ppo_bench.commands.equivalence.against.in_torch import TorchScript
from ppo_bench.commands.equivalence.against.randomness import ActionNoise, permutation


class Order:
    """A permutation of transitions, whose parts lack those that only reset an environment."""

    def __init__(self, script: TorchScript, size: int) -> None:
        self._script, self._order = script, permutation(script, size).astype(np.int64)

    def split(self, size: int) -> list[torch.Tensor]:
        """Parts of `size` transitions."""
        parts = [self._order[k : k + size] for k in range(0, len(self._order), size)]
        if self._script.supply.masks_resets and self._script.uses("resets"):
            parts = [part[self._script.valid.ravel()[part]] for part in parts]
        return [torch.from_numpy(part) for part in parts]


def install(script: TorchScript) -> None:
    """Replace noise and permutations, and end an iteration with its last step of Adam, since few are logged."""
    if "envpool" in script.path.stem:
        pools.install(script)
    wandb: Any = types.ModuleType("wandb")
    wandb.init = lambda **_: script.used.add("writer")
    sys.modules["wandb"] = wandb
    action_noise, own_step = ActionNoise(script), torch.optim.Adam.step
    own_like = torch.randn_like

    def randn_like(x: torch.Tensor) -> torch.Tensor:
        return action_noise.now() if script.variables else own_like(x)

    def randperm(size: int, device: Any) -> Any:
        return Order(script, size)

    def step(self: Any, *arguments: Any) -> Any:
        loss, own = own_step(self, *arguments), script.own
        if own["epoch"] == own["args"].update_epochs - 1 and own["b"] is own["b_inds"][-1]:
            script.end_iteration_with(own["container"]["actions"].numpy())
        return loss

    torch.randn_like, torch.randperm = randn_like, randperm  # type: ignore[assignment]
    torch.optim.Adam.step = step  # type: ignore[method-assign,assignment]
