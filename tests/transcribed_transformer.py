"""A transformer over an episode by PyTorch's own attention, as a reference."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from tests.transcribed_layers import Inputs, Policy, nature_cnn, outputs_of


class TransformerLayer(nn.Module):
    """PyTorch's own attention to an episode's rows; its projections are of one head, and the same in all."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.norm_query, self.norm_rows, self.norm_linear = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(dim // heads, dim // heads, bias=False) for _ in range(3))
        self.out, self.linear = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """The output `[D]` of one environment, from the input `x [D]` and what it remembers, `rows [L, D]`."""
        attended = self.attended(self.norm_query(x), self.norm_rows(rows)) if len(rows) else self.out.bias
        y = x + attended
        return y + torch.relu(self.linear(self.norm_linear(y)))

    def attended(self, query: Tensor, rows: Tensor) -> Tensor:
        # PyTorch divides products by the root of a head's dimensions, CleanRL by that of all.
        in_heads = [torch.block_diag(*[layer.weight] * self.heads) for layer in (self.query, self.key, self.value)]
        in_heads[0] = in_heads[0] / math.sqrt(self.heads)
        out, _ = F.multi_head_attention_forward(
            query[None],
            rows,
            rows,
            self.dim,
            self.heads,
            torch.cat(in_heads),
            in_proj_bias=None,
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.out.weight,
            out_proj_bias=self.out.bias,
            need_weights=False,
        )
        return out[0]


class Attending(Policy):
    """An actor and a critic behind a transformer over an episode's latest steps, environment by environment."""

    DIM, LAYERS, MEMORY, PLACES = 8, 2, 5, 9

    def __init__(self, trunk: nn.Module, actions: spaces.Space, positions: str) -> None:
        super().__init__(trunk, nn.Linear(self.DIM, outputs_of(actions)), nn.Linear(self.DIM, 1), actions)
        self.positions = positions
        layers: list[nn.Module] = [TransformerLayer(self.DIM, 2) for _ in range(self.LAYERS)]
        self.memory = nn.ModuleList([*layers, nn.Linear(self.DIM, self.DIM)])
        self.learned = nn.Embedding(self.PLACES, self.DIM) if positions == "learned" else None
        self.double()

    def position(self, places: Tensor) -> Tensor:
        """Positions `[L, D]` of the `places [L]` of an episode."""
        if self.learned is not None:
            return self.learned(places.clamp(max=self.PLACES - 1))
        found = torch.zeros(len(places), self.DIM, dtype=torch.float64)
        for k, place in enumerate(places.tolist()) if self.positions == "absolute" else ():
            for i in range(self.DIM // 2):
                angle = (self.PLACES - 1 - place) / 10_000 ** (2 * i / self.DIM)
                found[k, i], found[k, i + self.DIM // 2] = math.sin(angle), math.cos(angle)
        return found

    def forward(self, obs: Tensor, memory: Tensor, episode_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = [
            self.one(x, torch.zeros_like(row) if anew else row)
            for x, row, anew in zip(self.trunk(obs), memory, episode_start, strict=True)
        ]
        hidden = torch.stack([x for x, _ in found])
        return self.actor(hidden), self.critic(hidden).squeeze(-1), torch.stack([after for _, after in found])

    def one(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One environment's hidden layer `[D]`, and its memory: how many steps it has, and the latest ones."""
        steps, rows = int(memory[0]), memory[1:].view(self.MEMORY, self.LAYERS, self.DIM)
        held = min(steps, self.MEMORY)
        positions, inputs = self.position(torch.arange(steps - held, steps)), []
        for i in range(self.LAYERS):
            inputs.append(x.detach())
            x = self.memory[i](x, rows[self.MEMORY - held :, i] + positions)
        after = torch.cat([rows[1:], torch.stack(inputs)[None]])
        return torch.relu(self.memory[-1](x)), torch.cat([memory[:1] + 1, after.flatten()])

    def memory_of(self, num_envs: int) -> Tensor:
        return torch.zeros(num_envs, 1 + self.MEMORY * self.LAYERS * self.DIM, dtype=torch.float64)

    def named_arrays(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from super().named_arrays()
        yield from ((f"memory.{name}", array) for name, array in self.memory.named_parameters())
        if self.learned is not None:
            yield from ((f"memory.positions.{name}", array) for name, array in self.learned.named_parameters())


TRXL = (
    f"network.dim={Attending.DIM}",
    f"network.layers={Attending.LAYERS}",
    "network.heads=2",
    f"network.memory={Attending.MEMORY}",
    f"network.max_episode_steps={Attending.PLACES}",
)
"""The sizes of `Attending`."""


def trxl(space: spaces.Box, actions: spaces.Space, positions: str = "absolute") -> Policy:
    if len(space.shape) == 3:
        convolutions = nature_cnn(space, actions).trunk[0]  # type: ignore[index]
        features = convolutions(torch.zeros(1, *space.shape).double()).shape[1]
        trunk: nn.Module = nn.Sequential(convolutions, nn.Linear(features, Attending.DIM), nn.ReLU())
    else:
        trunk = nn.Sequential(Inputs(space), nn.Flatten(), nn.Linear(math.prod(space.shape), Attending.DIM))
    return Attending(trunk, actions, positions)
