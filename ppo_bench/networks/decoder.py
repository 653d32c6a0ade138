"""A decoder from a hidden layer to images, for an observation reconstruction loss (Pleines et al. 2023)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.layers import HIDDEN_GAIN, Conv, Linear, Spread
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.ops import Ops


@dataclass(frozen=True)
class Decoder:
    """A linear layer, whose output is reshaped to a small image, and transposed convolutions that enlarge the image."""

    flat: Linear
    corner: tuple[int, ...]
    """Height, width and channels of the small image."""
    spreading: tuple[Spread, ...]
    """Transposed convolutions."""

    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, in the order of use."""
        layers: tuple[Linear | Spread, ...] = (self.flat, *self.spreading)
        return tuple(parameter for layer in layers for parameter in layer.parameters())

    def forward(self, ops: Ops, layers: Tree, hidden: Array) -> Array:
        """Logits `[B, H, W, C]` of the pixels, from `hidden [B, D]`.

        `layers` are the parameters in the layers' dtype (`Ops.for_layers`).
        """
        x = ops.linear(hidden, layers[f"{self.flat.name}.weight"], layers[f"{self.flat.name}.bias"], "relu")
        x = x.reshape((x.shape[0], *self.corner))
        for layer in self.spreading:
            x = ops.spread(layer, x, layers[f"{layer.name}.weight"], layers[f"{layer.name}.bias"])
        return x


def decoder_of(network: NetworkSpec, dim: int) -> Decoder:
    """The decoder from a hidden layer of `dim` units to the images of `network`.

    It has a transposed convolution for each convolution of `network`, in reverse order. Raises `ConfigError` if these
    do not arrive at the size of the images.
    """
    layers, shapes = [], [network.input_shape]
    for layer in network.convolutions:
        assert isinstance(layer, Conv)
        height, width, _ = shapes[-1]
        shapes.append((layer.output_size(height), layer.output_size(width), layer.outputs))
        layers.append(layer)
    spreading = [
        Spread(f"decoder.{k}", layer.outputs, layer.inputs, layer.kernel, layer.stride)
        for k, layer in enumerate(reversed(layers), 1)
    ]
    spreading[-1] = dataclasses.replace(spreading[-1], activation=None)
    for layer, before, after in zip(layers, shapes, shapes[1:], strict=False):
        if any(
            (size - 1) * layer.stride + layer.kernel != side for size, side in zip(after[:2], before[:2], strict=True)
        ):
            raise ConfigError(
                f"network.reconstruction_coef: images of {network.input_shape[:2]} pixels cannot be made again by the "
                "decoder, those of 84 x 84 can; set it to 0"
            )
    features = network.trunk[0].inputs
    return Decoder(Linear("decoder.0", dim, features, HIDDEN_GAIN, uniform_bias=True), shapes[-1], tuple(spreading))


def cross_entropy(xp: Any, logits: Array, targets: Array) -> Array:
    """Mean binary cross-entropy, a scalar, of `sigmoid(logits)` against `targets` from 0 to 1, of the same shape."""
    return xp.mean(xp.logaddexp(xp.zeros_like(logits), logits) - logits * targets)
