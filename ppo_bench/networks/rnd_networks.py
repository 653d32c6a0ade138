"""Predictor and target networks of random network distillation (Burda et al. 2018).

For images, the target consists of the convolutions of Mnih et al. 2015 with leaky ReLU, and a linear layer. For
vectors, it consists of two linear layers. The predictor has two linear layers more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_bench.mathematics.arrays import Array, Tree, select_prefix
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import NATURE, input_sizes, nature_parameters
from ppo_bench.networks.layers import linear
from ppo_bench.networks.module_spec import ModuleSpec, hashable
from ppo_bench.networks.network import NetworkSpec

if TYPE_CHECKING:
    from ppo_bench.networks.ops import Ops

PREDICTOR, TARGET = "predictor", "target"


@dataclass(frozen=True)
class RndNetworks:
    """Predictor and target: two networks with the same inputs."""

    modules: dict[str, ModuleSpec]
    """The networks by name, `PREDICTOR` or `TARGET`."""
    input_shape: tuple[int, ...]
    """Shape of one input."""

    @property
    def takes_images(self) -> bool:
        """Whether inputs are images, not vectors."""
        return len(self.input_shape) > 1

    def parameters(self, which: str) -> tuple[Parameter, ...]:
        """Parameters of the network `which`, `PREDICTOR` or `TARGET`, which is the beginning of their names."""
        return tuple(p._replace(name=f"{which}.{p.name}") for p in self.modules[which].parameters)

    def features(self, ops: Ops, which: str, layers: Tree, inputs: Array) -> Array:
        """Features `[..., F]` that the network `which` computes from `inputs [..., *input_shape]`.

        `layers` are the parameters in the layers' dtype (`Ops.to_layer_dtype`).
        """
        lead = inputs.shape[: inputs.ndim - len(self.input_shape)]
        rows = inputs.reshape((math.prod(lead), *self.input_shape))
        found = ops.to_param_dtype(ops.call(self.modules[which], select_prefix(which, layers), ops.cast_obs(rows)))
        return found.reshape((*lead, found.shape[-1]))

    def inputs_from(self, obs: Array) -> Array:
        """Inputs from observations `[..., *network.input_shape]`: the last frame of images, or flattened vectors."""
        return obs[..., -self.input_shape[-1] :] if self.takes_images else obs.reshape((*obs.shape[:2], -1))


def rnd_networks(network: NetworkSpec, units: int) -> RndNetworks:
    """Predictor and target with `units` features for the observations of `network`.

    Raises `ConfigError` for images that are too small for the convolutions.
    """
    shape = network.input_shape
    if network.uint8 and len(shape) == 3:
        name, shape = "rnd_networks.ImageFeatures", (*shape[:2], 3 if shape[2] % 3 == 0 else 1)
        sizes = {**input_sizes("algorithm=rnd", shape[:2], NATURE), "channels": shape[2]}
        layers = tuple(p._replace(name=p.name.removeprefix("trunk.")) for p in nature_parameters(**sizes, units=units))
    else:
        name, shape = "rnd_networks.VectorFeatures", (math.prod(shape),)
        sizes = {"inputs": shape[0]}
        layers = (*linear("0", shape[0], units), *linear("1", units, units))
    last = len(layers) // 2
    extra = (*linear(f"{last}", units, units), *linear(f"{last + 1}", units, units))  # the predictor's
    target = ModuleSpec(name, layers, hashable({**sizes, "units": units, "is_predictor": False}))
    predictor = ModuleSpec(name, (*layers, *extra), hashable({**sizes, "units": units, "is_predictor": True}))
    return RndNetworks({PREDICTOR: predictor, TARGET: target}, shape)
