"""Parts of the reference networks, by PyTorch: layers, policies over them, and the inputs they take."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ppo_bench.common.flattened import FlattenedBox

HIDDEN = (16, 12)
"""Units of the layers of an `mlp`."""

SIGHTS = FlattenedBox(
    spaces.Box(-1.0, 1.0, (3 + 36 * 44 * 3 + 36 * 36 + 2,), np.float32),
    {
        "angles": spaces.Box(-1, 1, (3,)),
        "camera": spaces.Box(0, 255, (36, 44, 3), np.uint8),
        "depth": spaces.Box(0, 1, (1, 36, 36)),
        "speeds": spaces.Box(-1, 1, (2,)),
    },
    np.asarray,
)
"""Observations of two images among other numbers."""


class Policy(nn.Module):
    """An actor and a critic behind shared layers; the deviations of vectors of floats are parameters of their own."""

    log_std: Tensor | None
    learns_from_sequences = False
    """Whether it learns from whole environments, through its memory."""

    def __init__(self, trunk: nn.Module, actor: nn.Module, critic: nn.Module, actions: spaces.Space) -> None:
        super().__init__()
        self.trunk, self.actor, self.critic = trunk, actor, critic
        floats = torch.zeros(actions.shape or (1,)) if isinstance(actions, spaces.Box) else None
        self.register_parameter("log_std", None if floats is None else nn.Parameter(floats))

    def forward(self, obs: Tensor, memory: Tensor, episode_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


class Normalised(nn.Linear):
    """A linear layer and the normalisation of its sums."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(x))


def mlp(
    space: spaces.Box,
    actions: spaces.Space,
    activation: type[nn.Module] = nn.Tanh,
    hidden: type[nn.Linear] = nn.Linear,
) -> Policy:
    def chain(outputs: int) -> nn.Module:
        layers: list[nn.Module] = [Inputs(space), nn.Flatten()]
        sizes = (math.prod(space.shape), *HIDDEN)
        for before, after in zip(sizes, HIDDEN, strict=False):
            layers += [hidden(before, after), activation()]
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
