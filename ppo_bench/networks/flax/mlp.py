"""Multilayer perceptrons in Flax."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax

from ppo_bench.networks.flax.layers import ACTIVATIONS, Dense, LayerNorm


class Mlp(nn.Module):
    """`network=mlp`: actor and critic share nothing."""

    hidden_sizes: Sequence[int]
    outputs: int
    streams: int
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]` of `obs [B, inputs]`."""
        sizes = self.hidden_sizes, self.outputs, self.streams
        return actor_and_critic(obs, *sizes, self.activation, self.layer_norm)


def actor_and_critic(
    x: jax.Array, hidden_sizes: Sequence[int], outputs: int, streams: int, activation: str, layer_norm: bool
) -> tuple[jax.Array, jax.Array]:
    """Outputs of an actor and of a critic of `x`, which share no layer."""

    def last(part: str, size: int) -> jax.Array:
        hidden = hidden_layers(x, part, hidden_sizes, activation, layer_norm)
        return Dense(size, name=f"{part}.{len(hidden_sizes)}")(hidden)

    return last("actor", outputs), last("critic", streams)


def hidden_layers(x: jax.Array, part: str, sizes: Sequence[int], activation: str, layer_norm: bool) -> jax.Array:
    """Outputs of layers of `sizes` units, named after `part` of the module that calls this function."""
    for i, size in enumerate(sizes):
        x = Dense(size, name=f"{part}.{i}")(x)
        if layer_norm:
            x = LayerNorm(name=f"{part}.{i}.norm")(x)
        x = ACTIVATIONS[activation](x)
    return x
