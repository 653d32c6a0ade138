"""The networks of conf/network as ordinary PyTorch modules in float64, written from their papers.

They share names and layout of the weights with the package, and no code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

HIDDEN = (16, 12)
"""Units of the layers of an `mlp`."""


class Policy(nn.Module):
    """An actor and a critic behind shared layers; the deviations of vectors of floats are parameters of their own."""

    log_std: Tensor | None
    sequences = False
    """Whether it learns from whole environments, through its memory."""

    def __init__(self, trunk: nn.Module, actor: nn.Module, critic: nn.Module, actions: spaces.Space) -> None:
        super().__init__()
        self.trunk, self.actor, self.critic = trunk, actor, critic
        floats = torch.zeros(actions.shape or (1,)) if isinstance(actions, spaces.Box) else None
        self.register_parameter("log_std", None if floats is None else nn.Parameter(floats))

    def forward(self, obs: Tensor, memory: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The actor's output, values, and the memory after it, which here is none."""
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden).squeeze(-1), memory

    def memory_of(self, num_envs: int) -> Tensor:
        """The memory of environments that have seen nothing."""
        return torch.zeros(num_envs, 0, dtype=torch.float64)

    def named_arrays(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter by its name in a checkpoint."""
        for part in ("trunk", "actor", "critic"):
            layers = [m for m in getattr(self, part).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
            for index, layer in enumerate(layers):
                yield from ((f"{part}.{index}.{name}", array) for name, array in layer.named_parameters())
        yield from ((f"actor.{name}", array) for name, array in self.named_parameters(recurse=False))

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Take all of a checkpoint's parameters."""
        parameters = dict(self.named_arrays())
        assert set(parameters) == set(weights), "names of the parameters"
        for name, parameter in parameters.items():
            array = torch.from_numpy(weights[name]).double()
            array = array.permute(0, 3, 1, 2) if array.ndim == 4 else array
            assert parameter.shape == array.shape, name
            parameter.data = array.clone(memory_format=torch.contiguous_format)

    def arrays(self) -> dict[str, np.ndarray]:
        """The parameters in a checkpoint's layout; copies."""
        arrays = {name: array.detach() for name, array in self.named_arrays()}
        return {name: (a.permute(0, 2, 3, 1) if a.ndim == 4 else a).numpy().copy() for name, a in arrays.items()}


class Inputs(nn.Module):
    """Observations as numbers, of bytes those from 0 to 1; images have their channels first."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.scale = 255.0 if space.dtype == np.uint8 else 1.0
        self.turned = len(space.shape) == 3 and space.shape[0] >= space.shape[-1]

    def forward(self, obs: Tensor) -> Tensor:
        return (obs.permute(0, 3, 1, 2) if self.turned else obs) / self.scale


class Flat(nn.Module):
    """Images `[B, C, H, W]` as rows, of which pixels are the outer order and channels the inner."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


class Residual(nn.Module):
    """Two convolutions, each behind a rectifier, and their input added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(torch.relu(x))))


def outputs_of(actions: spaces.Space) -> int:
    if isinstance(actions, spaces.Discrete):
        return int(actions.n)
    if isinstance(actions, spaces.MultiDiscrete):
        return int(actions.nvec.sum())
    return math.prod(actions.shape or ()) * (2 if isinstance(actions, spaces.MultiBinary) else 1)


def mlp(space: spaces.Box, actions: spaces.Space, activation: type[nn.Module] = nn.Tanh) -> Policy:
    def chain(outputs: int) -> nn.Module:
        layers: list[nn.Module] = [Inputs(space), nn.Flatten()]
        sizes = (math.prod(space.shape), *HIDDEN)
        for before, after in zip(sizes, HIDDEN, strict=False):
            layers += [nn.Linear(before, after), activation()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    return Policy(nn.Identity(), chain(outputs_of(actions)), chain(1), actions).double()


def shared(space: spaces.Box, actions: spaces.Space, units: int, *layers: nn.Module) -> Policy:
    """`layers` on images and a linear one of `units`, shared by actor and critic."""
    images = nn.Sequential(Inputs(space), *layers, Flat())
    features = images(torch.zeros(1, *space.shape)).shape[1]
    trunk = nn.Sequential(images, nn.Linear(features, units), nn.ReLU())
    return Policy(trunk, nn.Linear(units, outputs_of(actions)), nn.Linear(units, 1), actions).double()


def channels(space: spaces.Box) -> int:
    return min(space.shape)


def nature_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    convolutions = (nn.Conv2d(channels(space), 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
    return shared(space, actions, 512, *(layer for conv in convolutions for layer in (conv, nn.ReLU())))


def impala_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels(space), 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
        layers += [Residual(outputs), Residual(outputs)]
    return shared(space, actions, 256, *layers, nn.ReLU())


def minatar_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    return shared(space, actions, 128, nn.Conv2d(channels(space), 16, 3), nn.ReLU())


def auto(space: spaces.Box, actions: spaces.Space) -> Policy:
    """The network that README.md and conf/network/auto.yaml promise for these observations."""
    if len(space.shape) != 3:
        return mlp(space, actions)
    if space.dtype == np.bool_:
        return minatar_cnn(space, actions)
    return (impala_cnn if max(space.shape) == 64 and channels(space) == 3 else nature_cnn)(space, actions)


class Averaging(Policy):
    """An `mlp` of a fading mean of the observations, as tests/seams.py has it."""

    fading: Tensor

    def __init__(self, space: spaces.Box, actions: spaces.Space) -> None:
        inner = mlp(space, actions)
        super().__init__(inner.trunk, inner.actor, inner.critic, actions)
        self.fading = nn.Parameter(torch.zeros(()))
        self.double()

    def forward(self, obs: Tensor, memory: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share = torch.sigmoid(self.fading)
        mean = share * torch.where(start[:, None], 0.0, memory) + (1.0 - share) * obs
        output, value, _ = super().forward(mean, memory, start)
        return output, value, mean

    def memory_of(self, num_envs: int) -> Tensor:
        return torch.zeros(num_envs, self.actor[2].in_features, dtype=torch.float64)  # type: ignore[index]

    def named_arrays(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from ((name.replace("actor.fading", "fading"), array) for name, array in super().named_arrays())


class AveragingSequences(Averaging):
    """The same, which learns through its memory."""

    sequences = True


class Remembering(Policy):
    """An actor and a critic that see the hidden state of PyTorch's own cell, `units` wide, behind `trunk`."""

    sequences = True

    def __init__(self, trunk: nn.Module, cell: nn.LSTMCell | nn.GRUCell, actions: spaces.Space) -> None:
        units = cell.hidden_size
        super().__init__(trunk, nn.Linear(units, outputs_of(actions)), nn.Linear(units, 1), actions)
        self.cell = cell
        self.double()

    def forward(self, obs: Tensor, memory: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = torch.where(start[:, None], 0.0, memory).split(self.cell.hidden_size, -1)
        features = self.trunk(obs)
        state = self.cell(features, kept) if isinstance(self.cell, nn.LSTMCell) else (self.cell(features, kept[0]),)
        return self.actor(state[0]), self.critic(state[0]).squeeze(-1), torch.cat(state, -1)

    def memory_of(self, num_envs: int) -> Tensor:
        parts = 2 if isinstance(self.cell, nn.LSTMCell) else 1
        return torch.zeros(num_envs, parts * self.cell.hidden_size, dtype=torch.float64)

    def named_arrays(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from super().named_arrays()
        yield from ((f"memory.{name}", array) for name, array in self.cell.named_parameters())


def recurrent(cell: type[nn.LSTMCell | nn.GRUCell], space: spaces.Box, actions: spaces.Space) -> Policy:
    layers: list[nn.Module] = [Inputs(space), nn.Flatten()]
    for before, after in zip((math.prod(space.shape), *HIDDEN), HIDDEN, strict=False):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return Remembering(nn.Sequential(*layers), cell(HIDDEN[-1], 64), actions)


def lstm_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    return Remembering(nature_cnn(space, actions).trunk, nn.LSTMCell(512, 128), actions)


class Gate(nn.Module):
    """The gate of Parisotto et al. 2020 in place of a sum, biased towards what was there before."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reset_new, self.update_new, self.candidate_new = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.reset_old, self.update_old, self.candidate_old = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, old: Tensor, new: Tensor) -> Tensor:
        r = torch.sigmoid(self.reset_new(new) + self.reset_old(old))
        z = torch.sigmoid(self.update_new(new) + self.update_old(old) - self.bias)
        return torch.lerp(old, torch.tanh(self.candidate_new(new) + self.candidate_old(r * old)), z)


class TransformerLayer(nn.Module):
    """PyTorch's own attention to an episode's rows; its projections are of one head, and the same in all."""

    def __init__(self, dim: int, heads: int, gated: bool) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.norm_query, self.norm_rows, self.norm_linear = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(dim // heads, dim // heads, bias=False) for _ in range(3))
        self.out, self.linear = nn.Linear(dim, dim), nn.Linear(dim, dim)
        if gated:
            self.gate_attention, self.gate_linear = Gate(dim), Gate(dim)
        self.gated = gated

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """The output `[D]` of one environment, from the input `x [D]` and what it remembers, `rows [L, D]`."""
        attended = self.attended(self.norm_query(x), self.norm_rows(rows)) if len(rows) else self.out.bias
        y = self.gate_attention(x, attended) if self.gated else x + attended
        z = torch.relu(self.linear(self.norm_linear(y)))
        return self.gate_linear(y, z) if self.gated else y + z

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

    def __init__(self, trunk: nn.Module, actions: spaces.Space, positions: str, gated: bool) -> None:
        super().__init__(trunk, nn.Linear(self.DIM, outputs_of(actions)), nn.Linear(self.DIM, 1), actions)
        self.positions = positions
        layers: list[nn.Module] = [TransformerLayer(self.DIM, 2, gated) for _ in range(self.LAYERS)]
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

    def forward(self, obs: Tensor, memory: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = [
            self.one(x, torch.zeros_like(row) if anew else row)
            for x, row, anew in zip(self.trunk(obs), memory, start, strict=True)
        ]
        hidden = torch.stack([x for x, _ in found])
        return self.actor(hidden), self.critic(hidden).squeeze(-1), torch.stack([after for _, after in found])

    def one(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What one environment's actor and critic see, `[D]`, and its memory: how many steps, and the latest ones."""
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


def trxl(space: spaces.Box, actions: spaces.Space, positions: str = "absolute", gated: bool = False) -> Policy:
    if len(space.shape) == 3:
        convolutions = nature_cnn(space, actions).trunk[0]  # type: ignore[index]
        features = convolutions(torch.zeros(1, *space.shape).double()).shape[1]
        trunk: nn.Module = nn.Sequential(convolutions, nn.Linear(features, Attending.DIM), nn.ReLU())
    else:
        trunk = nn.Sequential(Inputs(space), nn.Flatten(), nn.Linear(math.prod(space.shape), Attending.DIM))
    return Attending(trunk, actions, positions, gated)


class Wide(Policy):
    """The critic also sees what its own layer made its features of."""

    def forward(self, obs: Tensor, memory: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.trunk(obs)
        own, last = (layer for layer in self.critic.modules() if isinstance(layer, nn.Linear))
        return self.actor(hidden), last(hidden + torch.relu(own(hidden))).squeeze(-1), memory


def rnd_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    convolutions = (nn.Conv2d(channels(space), 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
    narrow = shared(space, actions, 256, *(layer for conv in convolutions for layer in (conv, nn.ReLU())))
    trunk = nn.Sequential(narrow.trunk, nn.Linear(256, 448), nn.ReLU())
    actor = nn.Sequential(nn.Linear(448, 448), nn.ReLU(), nn.Linear(448, outputs_of(actions)))
    return Wide(trunk, actor, nn.Sequential(nn.Linear(448, 448), nn.Linear(448, 1)), actions).double()


NETWORKS: dict[str, Callable[[spaces.Box, spaces.Space], Policy]] = {
    "mlp": mlp,
    "nature_cnn": nature_cnn,
    "impala_cnn": impala_cnn,
    "minatar_cnn": minatar_cnn,
    "auto": auto,
    "lstm": functools.partial(recurrent, nn.LSTMCell),
    "gru": functools.partial(recurrent, nn.GRUCell),
    "lstm_cnn": lstm_cnn,
    "rnd_cnn": rnd_cnn,
    "trxl": trxl,
    "wide_mlp": functools.partial(mlp, activation=nn.ReLU),
}
"""The reference of each file of conf/network."""
