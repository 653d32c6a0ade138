"""Networks with a recurrent cell, shared by actor and critic, in Flax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.flax.cnn import actor_critic_heads, nature
from ppo_bench.networks.flax.layers import affine, zeros
from ppo_bench.networks.flax.mlp import hidden_layers

Carry = dict[str, jax.Array]
Result = tuple[jax.Array, jax.Array, Carry]


class Cell(nn.Module):
    """An LSTM or a GRU whose state begins anew with each episode; its parameters are those of `torch.nn.LSTM`."""

    cell: str
    units: int

    @nn.compact
    def __call__(self, x: jax.Array, carry: Carry, episode_start: jax.Array) -> tuple[jax.Array, Carry]:
        """Hidden states `[..., B, units]` of `x [..., B, inputs]`, and the next carry; `episode_start [..., B]` is 1
        where the state begins anew. There may be an axis of steps before B."""
        cell = CELLS[self.cell]
        gates = cell.gates * self.units
        weight_ih = self.param("weight_ih", zeros, (gates, x.shape[-1]))
        weight_hh = self.param("weight_hh", zeros, (gates, self.units))
        bias_ih, bias_hh = (self.param(name, zeros, (gates,)) for name in ("bias_ih", "bias_hh"))

        def step(state: tuple[jax.Array, ...], row: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            projected, started = row
            not_reset = (1 - started)[:, None].astype(projected.dtype)
            state = tuple(part * not_reset for part in state)
            state, _ = cell.step(jnp, projected, affine(state[0], weight_hh.T, bias_hh), state)
            return state, state[0]

        rows = affine(x, weight_ih.T, bias_ih), episode_start
        state = tuple(carry[name].astype(rows[0].dtype) for name in cell.states)
        state, hidden = step(state, rows) if episode_start.ndim == 1 else jax.lax.scan(step, state, rows)
        return hidden, dict(zip(cell.states, state, strict=True))


class RecurrentMlp(nn.Module):
    """`network=lstm` and `network=gru`."""

    hidden_sizes: Sequence[int]
    activation: str
    layer_norm: bool
    cell: str
    units: int
    outputs: int
    streams: int

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Carry, episode_start: jax.Array) -> Result:
        """The policy's outputs `[B, outputs]`, values `[B, streams]` and the next carry; with `episode_start [T, B]`
        those of the sequences `obs [T, B, inputs]`, from the first step to the last."""
        features = hidden_layers(obs, "trunk", self.hidden_sizes, self.activation, self.layer_norm)
        hidden, carry = Cell(self.cell, self.units, name="memory")(features, carry, episode_start)
        return *actor_critic_heads(hidden, self.outputs, self.streams), carry


class RecurrentCnn(nn.Module):
    """`network=lstm_cnn`."""

    cell: str
    units: int
    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Carry, episode_start: jax.Array) -> Result:
        """See `RecurrentMlp`."""
        features = nature(obs.reshape((-1, *obs.shape[episode_start.ndim :])), 512, self.by_products)
        features = features.reshape((*episode_start.shape, -1))
        hidden, carry = Cell(self.cell, self.units, name="memory")(features, carry, episode_start)
        return *actor_critic_heads(hidden, self.outputs, self.streams), carry
