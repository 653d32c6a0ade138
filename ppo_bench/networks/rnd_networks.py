"""Predictor and target networks of random network distillation (Burda et al. 2018).

For images, the target consists of the convolutions of Mnih et al. 2015 with leaky ReLU, and a linear layer. For
vectors, it consists of two linear layers. The predictor has two linear layers more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import MIN_IMAGE_SIDE, NATURE, num_output_pixels
from ppo_bench.networks.layers import Parameters, conv, linear
from ppo_bench.networks.module_spec import ModuleSpec, options
from ppo_bench.networks.network import NetworkSpec

if TYPE_CHECKING:
    from ppo_bench.networks.ops import Ops

PREDICTOR, TARGET = "predictor", "target"


@dataclass(frozen=True)
class RndNetworks:
    """Predictor and target: two networks with the same inputs. Parameter names begin with `PREDICTOR` or `TARGET`."""

    modules: dict[str, ModuleSpec]
    """The networks by name, `PREDICTOR` or `TARGET`."""
    input_shape: tuple[int, ...]
    """Shape of one input."""

    @property
    def takes_images(self) -> bool:
        """Whether inputs are images, not vectors."""
        return len(self.input_shape) > 1

    def parameters(self, which: str) -> tuple[Parameter, ...]:
        """Parameters of the network `which`, `PREDICTOR` or `TARGET`."""
        return self.modules[which].parameters

    def features(self, ops: Ops, which: str, layers: Tree, inputs: Array) -> Array:
        """Features `[..., F]` that the network `which` computes from `inputs [..., *input_shape]`.

        `layers` are the parameters in the layers' dtype (`Ops.to_layer_dtype`).
        """
        lead = inputs.shape[: inputs.ndim - len(self.input_shape)]
        rows = inputs.reshape((math.prod(lead), *self.input_shape))
        found = ops.to_param_dtype(ops.call(self.modules[which], layers, ops.cast_obs(rows)))
        return found.reshape((*lead, found.shape[-1]))

    def inputs_from(self, obs: Array) -> Array:
        """Inputs from observations `[..., *network.input_shape]`: the last frame of images, or flattened vectors."""
        return obs[..., -self.input_shape[-1] :] if self.takes_images else obs.reshape((*obs.shape[:2], -1))


def rnd_networks(network: NetworkSpec, units: int) -> RndNetworks:
    """Predictor and target with `units` features for the observations of `network`.

    Raises `ConfigError` for images of less than `MIN_IMAGE_SIDE` in height or width.
    """
    shape = network.input_shape
    if not (network.uint8 and len(shape) == 3):
        size = math.prod(shape)
        return RndNetworks({which: _vector_module(which, size, units) for which in (PREDICTOR, TARGET)}, (size,))
    if min(shape[:2]) < MIN_IMAGE_SIDE:
        size_text = " x ".join(map(str, shape[:2]))
        raise ConfigError(
            f"algorithm=rnd takes images of {MIN_IMAGE_SIDE} x {MIN_IMAGE_SIDE} pixels or more, not {size_text}"
        )
    height, width, channels = *shape[:2], 3 if shape[2] % 3 == 0 else 1
    pixels = num_output_pixels(NATURE, height, width)
    modules = {which: _image_module(which, channels, pixels, units) for which in (PREDICTOR, TARGET)}
    return RndNetworks(modules, (height, width, channels))


def _vector_module(which: str, inputs: int, units: int) -> ModuleSpec:
    return ModuleSpec(
        "rnd_networks.VectorFeatures",
        options(units=units, is_predictor=which == PREDICTOR),
        (
            *linear(f"{which}.0", inputs, units),
            *linear(f"{which}.1", units, units),
            *_extra_predictor_layers(which, units, first=2),
        ),
        inputs=options(inputs=inputs),
        flax=options(prefix=which),
    )


def _image_module(which: str, channels: int, pixels: int, units: int) -> ModuleSpec:
    return ModuleSpec(
        "rnd_networks.ImageFeatures",
        options(units=units, is_predictor=which == PREDICTOR),
        (
            *conv(f"{which}.0", channels, 32, kernel=8),
            *conv(f"{which}.1", 32, 64, kernel=4),
            *conv(f"{which}.2", 64, 64, kernel=3),
            *linear(f"{which}.3", 64 * pixels, units),
            *_extra_predictor_layers(which, units, first=4),
        ),
        inputs=options(channels=channels, pixels=pixels),
        flax=options(prefix=which),
        convolves=True,
    )


def _extra_predictor_layers(which: str, units: int, first: int) -> Parameters:
    """Parameters of the two layers that the predictor has more than the target."""
    layers = (linear(f"{which}.{first + k}", units, units) for k in range(2 if which == PREDICTOR else 0))
    return tuple(parameter for layer in layers for parameter in layer)
