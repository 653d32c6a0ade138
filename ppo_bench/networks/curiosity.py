"""Predictor and target networks of random network distillation (Burda et al. 2018).

For images, the target consists of the convolutions of Mnih et al. 2015 with leaky ReLU, and a linear layer. For
vectors, it consists of two linear layers. The predictor has two linear layers more.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import LEAST_PIXELS, nature, pixels_after
from ppo_bench.networks.layers import HIDDEN_GAIN, Activation, Conv, Linear
from ppo_bench.networks.network import NetworkSpec, features

if TYPE_CHECKING:
    from ppo_bench.networks.ops import Ops

PREDICTOR, TARGET = "predictor", "target"


@dataclass(frozen=True)
class Curiosity:
    """Predictor and target: two networks with the same inputs. Parameter names begin with `PREDICTOR` or `TARGET`."""

    convolutions: tuple[Conv, ...]
    """Convolutions, the same in both networks; empty for vectors."""
    hidden: dict[str, tuple[Linear, ...]]
    """Linear layers by network, `PREDICTOR` or `TARGET`."""
    input_shape: tuple[int, ...]
    """Shape of one input."""

    def parameters(self, which: str) -> tuple[Parameter, ...]:
        """Parameters of the network `which`, `PREDICTOR` or `TARGET`."""
        layers: tuple[Conv | Linear, ...] = (*self._convolutions(which), *self.hidden[which])
        return tuple(parameter for layer in layers for parameter in layer.parameters())

    def features(self, ops: Ops, which: str, layers: Tree, inputs: Array) -> Array:
        """Features `[..., F]` that the network `which` computes from `inputs [..., *input_shape]`.

        `layers` are the parameters in the layers' dtype (`Ops.for_layers`).
        """
        lead = inputs.shape[: inputs.ndim - len(self.input_shape)]
        rows = inputs.reshape((math.prod(lead), *self.input_shape))
        found = ops.full(features(ops, self._convolutions(which), self.hidden[which], layers, rows))
        return found.reshape((*lead, found.shape[-1]))

    def _convolutions(self, which: str) -> tuple[Conv, ...]:
        return tuple(dataclasses.replace(layer, name=f"{which}.{layer.name}") for layer in self.convolutions)

    def part(self, obs: Array) -> Array:
        """Inputs from observations `[..., *network.input_shape]`: the last frame of images, or flattened vectors."""
        return obs[..., -self.input_shape[-1] :] if self.convolutions else obs.reshape((*obs.shape[:2], -1))


def curiosity(network: NetworkSpec, units: int) -> Curiosity:
    """Predictor and target with `units` features for the observations of `network`.

    Raises `ConfigError` for images of less than `LEAST_PIXELS` in height or width.
    """
    shape = network.input_shape
    if not (network.uint8 and len(shape) == 3):
        size = math.prod(shape)
        return Curiosity((), _hidden(0, [(size, units, "leaky_relu"), (units, units, None)]), (size,))
    if min(shape[:2]) < LEAST_PIXELS:
        shown = " x ".join(map(str, shape[:2]))
        raise ConfigError(f"algorithm=rnd takes images of {LEAST_PIXELS} x {LEAST_PIXELS} pixels or more, not {shown}")
    height, width, channels = *shape[:2], 3 if shape[2] % 3 == 0 else 1
    convolutions = nature(channels, prefix="", activation="leaky_relu")
    features_of_target = 64 * pixels_after(convolutions, height, width)
    return Curiosity(convolutions, _hidden(3, [(features_of_target, units, None)]), (height, width, channels))


def _hidden(first: int, target: list[tuple[int, int, Activation | None]]) -> dict[str, tuple[Linear, ...]]:
    """Linear layers of predictor and target, numbered from `first`.

    `target` lists (inputs, outputs, activation) of the target's layers; the predictor has two more, with ReLU before
    each of them.
    """
    *before, (inputs, units, _) = target
    predictor = [*before, (inputs, units, "relu"), (units, units, "relu"), (units, units, None)]
    return {
        which: tuple(
            Linear(f"{which}.{first + k}", layer[0], layer[1], HIDDEN_GAIN, layer[2]) for k, layer in enumerate(layers)
        )
        for which, layers in ((PREDICTOR, predictor), (TARGET, target))
    }
