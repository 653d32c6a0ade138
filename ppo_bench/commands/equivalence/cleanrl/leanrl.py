"""Patches of LeanRL's scripts alone, which have functions where CleanRL's have loops."""

from __future__ import annotations

from typing import Any

import torch

from ppo_bench.commands.equivalence.cleanrl.script import install_module, patch
from ppo_bench.commands.equivalence.cleanrl.torch_patches import noise_now
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript


def install(script: TorchScript) -> None:
    """Replace noise and wandb, and end an iteration with its last step of Adam, since few are logged."""
    install_module("wandb", init=lambda **_: script.used.add("wandb"), log=lambda *_, **__: None)

    @patch(torch, "randn_like")
    def randn_like(original: Any, x: torch.Tensor) -> torch.Tensor:
        return noise_now(script)

    script.end_with_last_minibatch()
