"""Transformer-XL policies in PyTorch (ppo_bench/networks/transformer.py says what they compute)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ppo_bench.mathematics import attention
from ppo_bench.networks.torch.cnn import nature
from ppo_bench.networks.torch.layers import Linear

Carry = dict[str, Tensor]


class Block(nn.Module):
    """One layer of the transformer: attention, then a linear layer, each with a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self._heads, head = heads, dim // heads
        self.norm_query, self.norm_rows = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value = (nn.Linear(head, head, bias=False) for _ in range(3))
        self.out = Linear(dim, dim)
        self.norm_linear = nn.LayerNorm(dim)
        self.linear = Linear(dim, dim, "relu")

    def forward(self, x: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Outputs `[B, D]` from inputs `x [B, D]` and the standardised `rows [B, L, D]` that `mask [B, L]` marks."""
        x = x + self._attend_to_rows(x, rows, mask)
        return x + self.linear(self.norm_linear(x))

    def _attend_to_rows(self, x: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """See ppo_bench/mathematics/attention.py for why the query is projected twice, and the rows are not."""

        def heads(y: Tensor) -> Tensor:
            return y.reshape(*y.shape[:-1], self._heads, -1)

        weight, bias = heads(self.norm_rows.weight), heads(self.norm_rows.bias)
        query = self.query(heads(self.norm_query(x))) @ self.key.weight * (weight / math.sqrt(x.shape[-1]))
        means, sums = attention.attend(torch, query, heads(rows), mask)
        values = self.value(means * weight + sums[..., None] * bias)
        out: Tensor = self.out(values.flatten(-2))
        return out


class Transformer(nn.Module):
    """`network=trxl`."""

    def __init__(
        self,
        inputs: int,
        image: tuple[int, int] | None,
        dim: int,
        layers: int,
        heads: int,
        memory: int,
        positions: str,
        max_episode_steps: int,
        outputs: int,
        streams: int,
    ) -> None:
        """`image` are the channels of images and the pixels that the convolutions leave; None for vectors."""
        super().__init__()
        self._memory, self._encoding, self._most = memory, positions, max_episode_steps - 1
        self.trunk = nature(*image, dim) if image else Linear(inputs, dim)
        self.actor = Linear(dim, outputs)
        self.critic = Linear(dim, streams)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        if positions == "learned":
            self.positions = nn.Embedding(max_episode_steps, dim)
        self.hidden = Linear(dim, dim, "relu")

    def forward(self, obs: Tensor, carry: Carry, episode_start: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """The policy's outputs `[B, outputs]`, values `[B, streams]` and the next carry."""
        steps = carry["steps"] * (1 - episode_start)
        ago = torch.arange(self._memory, 0, -1, device=steps.device)  # age of each row; that of the last step is 1
        mask = ago <= steps[:, None]
        x, memory_rows = self.trunk(obs), []
        rows = self._rows(carry["inputs"].to(x.dtype), steps[:, None] - ago)
        for layer, block in enumerate(self.blocks):
            memory_rows.append(self._memory_row(x, steps))
            x = block(x, rows[:, :, layer], mask)
        x = self.hidden(x)
        return self.actor(x), self.critic(x), {"steps": steps + 1, "inputs": torch.stack(memory_rows, 1)}

    def _memory_row(self, x: Tensor, steps: Tensor) -> Tensor:
        """The row `[B, D]` to remember for a layer's input `x [B, D]` at the step `steps [B]` of its episode."""
        if self._encoding == "learned":
            return x
        if self._encoding == "absolute":  # positions count down from the last one, as in CleanRL
            x = x + attention.sinusoids(torch, self._most - steps, x)
        return F.layer_norm(x, x.shape[-1:])

    def _rows(self, memory_rows: Tensor, row_steps: Tensor) -> Tensor:
        """Standardised rows `[B, L, layers, D]` with positions, from the stored rows `memory_rows`.

        `row_steps [B, L]` are the rows' steps in the episode.
        """
        if self._encoding != "learned":
            return memory_rows
        positions = self.positions(row_steps.clip(0, self._most).int())
        return F.layer_norm(memory_rows + positions[:, :, None], memory_rows.shape[-1:])
