"""Transformer-XL policies: each layer attends to its own inputs at the latest steps of the episode (Dai et al. 2019).

Layers, their order and their defaults are those of CleanRL's ppo_trxl.py (Pleines et al. 2023, "Memory Gym"): attention
heads share their projections, inputs are normalised before each layer, and scores are divided by the square root of all
dimensions. All biases, and the weights of the transformer's layers, start as PyTorch's do by default. Remembered inputs
carry no gradient. At the first step of an episode there is no row to attend to, and the attention's mean is 0.

The carry has the number of steps of the episode so far, and the inputs of each layer at the latest steps. These are
stored standardised and with their positions, except where positions are learnt: then both happen in every forward pass.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import AT_LEAST_1, within
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import (
    MIN_IMAGE_SIDE,
    NATURE,
    image_shape,
    input_sizes,
    nature_parameters,
)
from ppo_bench.networks.layers import CRITIC_GAIN, Parameters, layer_norm, linear, weight_and_bias
from ppo_bench.networks.module_spec import network_spec
from ppo_bench.networks.network import CarrySpec, NetworkSpec, action_spec

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Space

POSITIONS = within(lambda value: value in ("none", "absolute", "learned"), "choose none, absolute or learned")
ACTOR_GAIN = 0.1


def block(name: str, dim: int, heads: int) -> Parameters:
    """Parameters of one layer of the transformer."""
    head, square = dim // heads, (dim, dim)
    uniform = functools.partial(weight_and_bias, gain=None, uniform=True)  # as PyTorch does by default
    return (
        *layer_norm(f"{name}.norm_query", dim),
        *layer_norm(f"{name}.norm_rows", dim),
        *(uniform(f"{name}.{part}", (head, head))[0] for part in ("query", "key", "value")),
        *uniform(f"{name}.out", square),
        *layer_norm(f"{name}.norm_linear", dim),
        *uniform(f"{name}.linear", square),
    )


@dataclass(frozen=True)
class Trxl:
    """`network=trxl`; conf/network/trxl.yaml explains its options."""

    layers: int = field(metadata=AT_LEAST_1)
    heads: int = field(metadata=AT_LEAST_1)
    dim: int = field(metadata=AT_LEAST_1)
    memory: int = field(metadata=AT_LEAST_1)
    positions: str = field(metadata=POSITIONS)
    max_episode_steps: int = field(metadata=AT_LEAST_1)

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces. Images pass through the convolutions of Mnih et al. 2015 first, except those
        that are too small for them, which it takes as vectors.
        """
        if self.dim % self.heads or self.dim % 2:
            raise ConfigError(f"network.dim={self.dim}: must be even, and a multiple of network.heads={self.heads}")
        shape = observation_space.shape
        images = len(shape) in (2, 3, 4) and min(image_shape(shape)[:2]) >= MIN_IMAGE_SIDE
        actions, inputs = action_spec(action_space), math.prod(shape)
        image, trunk = None, linear("trunk.0", inputs, self.dim, uniform=True)
        if images:
            sizes = input_sizes("network=trxl", shape, NATURE)
            image = sizes["channels"], sizes["pixels"]
            trunk = nature_parameters(*image, self.dim, uniform=True)
        return network_spec(
            "transformer.Transformer",
            observation_space,
            actions,
            streams,
            (
                *trunk,
                *linear("actor.0", self.dim, actions.action_dim, gain=ACTOR_GAIN, uniform=True),
                *linear("critic.0", self.dim, streams, gain=CRITIC_GAIN, uniform=True),
                *(p for layer in range(self.layers) for p in block(f"memory.{layer}", self.dim, self.heads)),
                *(self._positions() if self.positions == "learned" else ()),
                *linear(f"memory.{self.layers}", self.dim, self.dim, uniform=True),
            ),
            {**vars(self), "image": image, "inputs": inputs},
            images=images,
            carry=(CarrySpec("steps", ()), CarrySpec("inputs", (self.memory, self.layers, self.dim), window=True)),
        )

    def _positions(self) -> Parameters:
        shape = self.max_episode_steps, self.dim
        return (Parameter("memory.positions.weight", shape, math.sqrt(max(shape))),)
