"""Predictor and target of random network distillation (Burda et al. 2018): features of an observation.

Of images the convolutions of Mnih et al. 2015 with leaky rectifiers and a linear layer, of vectors two linear layers;
in the predictor two more.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.layers import HIDDEN_GAIN, Activation, Conv, Linear
from ppo_bench.networks.network import NetworkSpec, features

if TYPE_CHECKING:
    from ppo_bench.networks.ops import Ops

PREDICTOR, TARGET = "predictor", "target"
FEWEST_PIXELS = 36
"""The shortest side of images: fewer pixels are nothing to the convolutions."""


@dataclass(frozen=True)
class Curiosity:
    """Two networks that take the same inputs; parameters are named after each."""

    convolutions: tuple[Conv, ...]
    hidden: dict[str, tuple[Linear, ...]]
    """The linear layers of predictor and target."""
    input_shape: tuple[int, ...]

    def parameters(self, which: str) -> tuple[Parameter, ...]:
        """Parameters of `which`."""
        layers: tuple[Conv | Linear, ...] = (*self._convolutions(which), *self.hidden[which])
        return tuple(parameter for layer in layers for parameter in layer.parameters())

    def features(self, ops: Ops, which: str, layers: Tree, inputs: Array) -> Array:
        """Features `[..., F]` of `inputs [..., *input_shape]`; `layers` are parameters as layers take them."""
        lead = inputs.shape[: inputs.ndim - len(self.input_shape)]
        rows = inputs.reshape((math.prod(lead), *self.input_shape))
        found = ops.full(features(ops, self._convolutions(which), self.hidden[which], layers, rows))
        return found.reshape((*lead, found.shape[-1]))

    def _convolutions(self, which: str) -> tuple[Conv, ...]:
        return tuple(dataclasses.replace(layer, name=f"{which}.{layer.name}") for layer in self.convolutions)

    def part(self, obs: Array) -> Array:
        """The part that is taken of observations `[..., *network.input_shape]`: of images the last frame."""
        return obs[..., -self.input_shape[-1] :] if self.convolutions else obs.reshape((*obs.shape[:2], -1))


def curiosity(network: NetworkSpec, units: int) -> Curiosity:
    """For what `network` observes, with so many features. Raises `ConfigError` for images that are too small."""
    shape = network.input_shape
    if not (network.uint8 and len(shape) == 3):
        size = math.prod(shape)
        return Curiosity((), _hidden(0, [(size, units, "leaky_relu"), (units, units, None)]), (size,))
    if min(shape[:2]) < FEWEST_PIXELS:
        shown = " x ".join(map(str, shape[:2]))
        raise ConfigError(
            f"algorithm=rnd takes images of {FEWEST_PIXELS} x {FEWEST_PIXELS} pixels or more, not {shown}"
        )
    height, width, channels = *shape[:2], 3 if shape[2] % 3 == 0 else 1
    convolutions = (
        Conv("0", channels, 32, kernel=8, stride=4, activation="leaky_relu"),
        Conv("1", 32, 64, kernel=4, stride=2, activation="leaky_relu"),
        Conv("2", 64, 64, kernel=3, stride=1, activation="leaky_relu"),
    )
    for layer in convolutions:
        height, width = layer.output_size(height), layer.output_size(width)
    return Curiosity(convolutions, _hidden(3, [(height * width * 64, units, None)]), (*shape[:2], channels))


def _hidden(first: int, target: list[tuple[int, int, Activation | None]]) -> dict[str, tuple[Linear, ...]]:
    """The linear layers of the target, numbered from `first`, and the predictor's: two more, behind rectifiers."""
    *before, (inputs, units, _) = target
    predictor = [*before, (inputs, units, "relu"), (units, units, "relu"), (units, units, None)]
    return {
        which: tuple(
            Linear(f"{which}.{first + k}", layer[0], layer[1], HIDDEN_GAIN, layer[2]) for k, layer in enumerate(layers)
        )
        for which, layers in ((PREDICTOR, predictor), (TARGET, target))
    }
