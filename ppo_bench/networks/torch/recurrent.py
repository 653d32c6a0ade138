"""Networks with a recurrent cell, shared by actor and critic, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.torch.cnn import nature
from ppo_bench.networks.torch.layers import Linear
from ppo_bench.networks.torch.mlp import hidden_layers
from ppo_bench.networks.torch.recurrence import run_recurrence

Carry = dict[str, Tensor]


class Cell(nn.Module):
    """An LSTM or a GRU whose state begins anew with each episode; its parameters are those of `torch.nn.LSTM`."""

    def __init__(self, cell: str, inputs: int, units: int) -> None:
        super().__init__()
        self._cell, gates = cell, CELLS[cell].gates * units
        self.weight_ih = nn.Parameter(torch.empty(gates, inputs))
        self.weight_hh = nn.Parameter(torch.empty(gates, units))
        self.bias_ih = nn.Parameter(torch.empty(gates))
        self.bias_hh = nn.Parameter(torch.empty(gates))

    def forward(self, x: Tensor, carry: Carry, episode_start: Tensor) -> tuple[Tensor, Carry]:
        """Hidden state `[B, units]` and carry after a step of `x [B, inputs]`; `episode_start [B]` is 1 where they
        begin."""
        cell, not_reset = CELLS[self._cell], (1 - episode_start)[:, None]
        state = tuple((carry[name] * not_reset).to(x.dtype) for name in cell.states)
        recurrent = F.linear(state[0], self.weight_hh, self.bias_hh)
        state, _ = cell.step(torch, F.linear(x, self.weight_ih, self.bias_ih), recurrent, state)
        return state[0], dict(zip(cell.states, state, strict=True))

    def unroll(self, x: Tensor, carry: Carry, episode_start: Tensor) -> Tensor:
        """Hidden states `[T, B, units]` of the sequences `x [T, B, inputs]`, with `episode_start [T, B]`."""
        state = torch.stack([carry[name].to(x.dtype) for name in CELLS[self._cell].states])
        projected = F.linear(x, self.weight_ih, self.bias_ih)
        return run_recurrence(self._cell, projected, episode_start.to(x.dtype), state, self.weight_hh, self.bias_hh)


class Recurrent(nn.Module):
    """`trunk`, a cell, and one layer each of actor and critic."""

    def __init__(self, trunk: nn.Module, cell: str, inputs: int, units: int, outputs: int, streams: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.actor = Linear(units, outputs)
        self.critic = Linear(units, streams)
        self.memory = Cell(cell, inputs, units)

    def forward(self, obs: Tensor, carry: Carry, episode_start: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """The policy's outputs `[B, outputs]`, values `[B, streams]` and the next carry.

        With `episode_start [T, B]`, `obs` are sequences `[T, B, ...]`, and so are the results; the carry is not
        computed.
        """
        if episode_start.ndim == 1:
            hidden, carry = self.memory(self.trunk(obs), carry, episode_start)
        else:
            features = self.trunk(obs.flatten(0, 1))
            hidden, carry = self.memory.unroll(features.unflatten(0, episode_start.shape), carry, episode_start), {}
        return self.actor(hidden), self.critic(hidden), carry


class RecurrentMlp(Recurrent):
    """`network=lstm` and `network=gru`."""

    def __init__(
        self,
        inputs: int,
        hidden_sizes: Sequence[int],
        activation: str,
        layer_norm: bool,
        cell: str,
        units: int,
        outputs: int,
        streams: int,
    ) -> None:
        trunk = nn.Sequential(*hidden_layers(inputs, hidden_sizes, activation, layer_norm))
        super().__init__(trunk, cell, [inputs, *hidden_sizes][-1], units, outputs, streams)


class RecurrentCnn(Recurrent):
    """`network=lstm_cnn`."""

    def __init__(self, channels: int, pixels: int, cell: str, units: int, outputs: int, streams: int) -> None:
        super().__init__(nature(channels, pixels, 512), cell, 512, units, outputs, streams)
