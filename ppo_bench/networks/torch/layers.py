"""Layers of the networks in PyTorch: linear layers and convolutions with their activation."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "leaky_relu": functools.partial(F.leaky_relu, inplace=True),
    "elu": functools.partial(F.elu, inplace=True),
    "gelu": F.gelu,
    "silu": F.silu,
}
"""Activations, in place where the gradient can be had from the output: in-place work passes over memory once less."""


class Chain(nn.Sequential):
    """`nn.Sequential` without hooks: calls of nine modules take a third of the time in which CartPole's policy acts."""

    def forward(self, x: Tensor) -> Tensor:
        """Output of the last layer."""
        for layer in self:
            x = layer.forward(x)
        return x


class Linear(nn.Linear):
    """A linear layer and its activation, in one module."""

    def __init__(self, inputs: int, outputs: int, activation: str | None = None) -> None:
        super().__init__(inputs, outputs)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Outputs `[..., outputs]` of `x [..., inputs]`."""
        return self.activation(F.linear(x, self.weight, self.bias))


class Conv2d(nn.Conv2d):
    """A convolution with a square kernel, and its activation."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, activation: str | None = "relu"
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Images `[B, outputs, h, w]` of `x [B, inputs, H, W]`."""
        return self.activation(F.conv2d(x, self.weight, self.bias, self.stride, self.padding))


class ChannelsFirst(nn.Module):
    """`[B, H, W, C]` to `[B, C, H, W]`: a view of channels-last memory, the fastest layout for convolutions."""

    def forward(self, images: Tensor) -> Tensor:
        """The view."""
        return images.permute(0, 3, 1, 2)


class Flatten(nn.Module):
    """`[B, C, H, W]` to `[B, H * W * C]`: channels last, as in JAX."""

    def forward(self, x: Tensor) -> Tensor:
        """The flat features."""
        return x.permute(0, 2, 3, 1).flatten(1)


class HiddenLayer(nn.Module):
    """A linear layer, a layer normalisation of its outputs, and an activation."""

    def __init__(self, inputs: int, outputs: int, activation: str) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Outputs `[..., outputs]` of `x [..., inputs]`."""
        return self.activation(self.norm(self.linear(x)))
