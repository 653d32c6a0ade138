"""The networks of conf/network as ordinary PyTorch modules in float64, written from their papers.

They share names and layout of the weights with the package, and no code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from tests.transcribed_layers import (
    HIDDEN,
    SIGHTS,
    Flat,
    Inputs,
    Policy,
    Residual,
    channels,
    mlp,
    nature_cnn,
    outputs_of,
    shared,
)
from tests.transcribed_transformer import trxl


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
        return (combined if space == SIGHTS else mlp)(space, actions)
    if space.dtype == np.bool_:
        return minatar_cnn(space, actions)
    return (impala_cnn if max(space.shape) == 64 and channels(space) == 3 else nature_cnn)(space, actions)


class Remembering(Policy):
    """An actor and a critic that see the hidden state of PyTorch's own cell, `units` wide, behind `trunk`."""

    learns_from_sequences = True

    def __init__(self, trunk: nn.Module, cell: nn.LSTMCell | nn.GRUCell, actions: spaces.Space) -> None:
        units = cell.hidden_size
        super().__init__(trunk, nn.Linear(units, outputs_of(actions)), nn.Linear(units, 1), actions)
        self.cell = cell
        self.double()

    def forward(self, obs: Tensor, memory: Tensor, episode_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = torch.where(episode_start[:, None], 0.0, memory).split(self.cell.hidden_size, -1)
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


class Wide(Policy):
    """The critic also sees what its own layer made its features of."""

    def forward(self, obs: Tensor, memory: Tensor, episode_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.trunk(obs)
        own, last = (layer for layer in self.critic.modules() if isinstance(layer, nn.Linear))
        return self.actor(hidden), last(hidden + torch.relu(own(hidden))).squeeze(-1), memory


def rnd_cnn(space: spaces.Box, actions: spaces.Space) -> Policy:
    convolutions = (nn.Conv2d(channels(space), 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
    narrow = shared(space, actions, 256, *(layer for conv in convolutions for layer in (conv, nn.ReLU())))
    trunk = nn.Sequential(narrow.trunk, nn.Linear(256, 448), nn.ReLU())
    actor = nn.Sequential(nn.Linear(448, 448), nn.ReLU(), nn.Linear(448, outputs_of(actions)))
    return Wide(trunk, actor, nn.Sequential(nn.Linear(448, 448), nn.Linear(448, 1)), actions).double()


class Sights(nn.Module):
    """Features of `SIGHTS` (tests/transcribed_layers.py): three angles, a colour image, a depth image, two speeds."""

    def __init__(self) -> None:
        super().__init__()
        self.camera, self.depth = self.eye(3, 64 * 1 * 2), self.eye(1, 64)

    @staticmethod
    def eye(channels: int, features: int) -> nn.Module:
        convolutions = nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)
        layers = [layer for conv in convolutions for layer in (conv, nn.ReLU())]
        return nn.Sequential(*layers, Flat(), nn.Linear(features, 256), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        angles, camera, depth, speeds = obs.split([3, 36 * 44 * 3, 36 * 36, 2], 1)
        camera, depth = camera.view(-1, 36, 44, 3).permute(0, 3, 1, 2), depth.view(-1, 1, 36, 36)
        return torch.cat((self.camera(camera), self.depth(depth), angles, speeds), 1)


def combined(_: spaces.Box, actions: spaces.Space) -> Policy:
    def chain(outputs: int) -> nn.Module:
        first, second = HIDDEN
        layers = (nn.Linear(256 + 256 + 3 + 2, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh())
        return nn.Sequential(*layers, nn.Linear(second, outputs))

    return Policy(Sights(), chain(outputs_of(actions)), chain(1), actions).double()


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
    "combined": combined,
}
"""The reference of each file of conf/network."""
