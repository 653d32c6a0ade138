"""Multilayer perceptrons in PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import Tensor, nn

from ppo_bench.networks.torch.layers import Chain, HiddenLayer, Linear


class Mlp(nn.Module):
    """`network=mlp`: actor and critic share nothing."""

    def __init__(
        self, inputs: int, hidden_sizes: Sequence[int], outputs: int, streams: int, activation: str, layer_norm: bool
    ) -> None:
        super().__init__()
        last = [inputs, *hidden_sizes][-1]
        hidden = functools.partial(hidden_layers, inputs, hidden_sizes, activation, layer_norm)
        self.actor = Chain(*hidden(), Linear(last, outputs))
        self.critic = Chain(*hidden(), Linear(last, streams))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]` of `obs [B, inputs]`."""
        return self.actor.forward(obs), self.critic.forward(obs)


def hidden_layers(inputs: int, sizes: Sequence[int], activation: str, layer_norm: bool) -> list[nn.Module]:
    """Layers of `sizes` units."""
    layer = HiddenLayer if layer_norm else Linear
    return [layer(before, after, activation) for before, after in zip([inputs, *sizes], sizes, strict=False)]
