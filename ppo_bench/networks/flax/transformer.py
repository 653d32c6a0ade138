"""Transformer-XL policies in Flax (ppo_bench/networks/transformer.py says what they compute)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics import attention
from ppo_bench.networks.flax.cnn import nature
from ppo_bench.networks.flax.layers import Dense, LayerNorm, standardise, zeros

Carry = dict[str, jax.Array]


class Weights(nn.Module):
    """Parameters by name, from their shapes."""

    shapes: Mapping[str, tuple[int, ...]]

    @nn.compact
    def __call__(self) -> list[jax.Array]:
        """The parameters."""
        return [self.param(name, zeros, shape) for name, shape in self.shapes.items()]


def attend_to_rows(name: str, heads: int, x: jax.Array, rows: jax.Array, mask: jax.Array) -> jax.Array:
    """The attention of `x [B, D]` to the `rows [B, L, D]` that `mask [B, L]` marks, `[B, D]`.

    ppo_bench/mathematics/attention.py says why the query is projected twice, and the rows are not.
    """

    def split(y: jax.Array) -> jax.Array:
        return y.reshape((*y.shape[:-1], heads, -1))

    size, head = x.shape[-1], x.shape[-1] // heads
    query, key, value = (
        Weights({"kernel": (head, head)}, name=f"{name}.{part}")()[0] for part in ("query", "key", "value")
    )
    weight, bias = map(split, Weights({"scale": (size,), "bias": (size,)}, name=f"{name}.norm_rows")())
    query = split(LayerNorm(name=f"{name}.norm_query")(x)) @ query @ key.T * (weight / math.sqrt(size))
    means, sums = attention.attend(jnp, query, split(rows), mask)
    values = (means * weight + sums[..., None] * bias) @ value
    return Dense(size, name=f"{name}.out")(values.reshape(x.shape))


class Transformer(nn.Module):
    """`network=trxl`; see the module of the same name in PyTorch for the arguments."""

    image: tuple[int, int] | None
    dim: int
    layers: int
    heads: int
    memory: int
    positions: str
    max_episode_steps: int
    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Carry, episode_start: jax.Array) -> tuple[jax.Array, jax.Array, Carry]:
        """The policy's outputs `[B, outputs]`, values `[B, streams]` and the next carry."""
        x = nature(obs, self.dim, self.by_products) if self.image else Dense(self.dim, name="trunk.0")(obs)
        steps, memory_rows = carry["steps"] * (1 - episode_start), []
        ago = jnp.arange(self.memory, 0, -1)  # age of each row; that of the last step is 1
        mask = ago <= steps[:, None]
        rows = self._rows(carry["inputs"].astype(x.dtype), steps[:, None] - ago)
        for layer in range(self.layers):
            memory_rows.append(self._memory_row(x, steps))
            x = self._block(f"memory.{layer}", x, rows[:, :, layer], mask)
        x = nn.relu(Dense(self.dim, name=f"memory.{self.layers}")(x))
        return (
            Dense(self.outputs, name="actor.0")(x),
            Dense(self.streams, name="critic.0")(x),
            {"steps": steps + 1, "inputs": jnp.stack(memory_rows, 1)},
        )

    def _block(self, name: str, x: jax.Array, rows: jax.Array, mask: jax.Array) -> jax.Array:
        """One layer: attention, then a linear layer, each with a residual connection."""
        x = x + attend_to_rows(name, self.heads, x, rows, mask)
        y = Dense(self.dim, name=f"{name}.linear")(LayerNorm(name=f"{name}.norm_linear")(x))
        return x + nn.relu(y)

    def _memory_row(self, x: jax.Array, steps: jax.Array) -> jax.Array:
        """The row `[B, D]` to remember for a layer's input `x [B, D]` at the step `steps [B]` of its episode."""
        if self.positions == "learned":
            return x
        if self.positions == "absolute":  # positions count down from the last one, as in CleanRL
            x = x + attention.sinusoids(jnp, self.max_episode_steps - 1 - steps, x)
        return standardise(x)

    def _rows(self, memory_rows: jax.Array, row_steps: jax.Array) -> jax.Array:
        """Standardised rows `[B, L, layers, D]` with positions, from the stored rows `memory_rows`.

        `row_steps [B, L]` are the rows' steps in the episode.
        """
        if self.positions != "learned":
            return memory_rows
        (kernel,) = Weights({"kernel": (self.dim, self.max_episode_steps)}, name="memory.positions")()
        row_steps = jnp.clip(row_steps, 0, self.max_episode_steps - 1).astype(jnp.int32)
        return standardise(memory_rows + kernel.T[row_steps][:, :, None])
