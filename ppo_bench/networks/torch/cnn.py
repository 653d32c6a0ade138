"""Convolutional networks in PyTorch, shared by actor and critic; `obs [B, H, W, C]` has its channels last."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ppo_bench.networks.torch.layers import ChannelsFirst, Conv2d, Flatten, Linear


def nature(channels: int, pixels: int, units: int) -> nn.Sequential:
    """The convolutions of Mnih et al. 2015, which leave `pixels`, and a linear layer of `units`."""
    return nn.Sequential(
        ChannelsFirst(),
        Conv2d(channels, 32, kernel=8, stride=4),
        Conv2d(32, 64, kernel=4, stride=2),
        Conv2d(64, 64, kernel=3, stride=1),
        Flatten(),
        Linear(64 * pixels, units, "relu"),
    )


class SharedTrunk(nn.Module):
    """A `trunk` with one layer each of actor and critic after it."""

    def __init__(self, trunk: nn.Module, units: int, outputs: int, streams: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.actor = Linear(units, outputs)
        self.critic = Linear(units, streams)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden)


class NatureCnn(SharedTrunk):
    """`network=nature_cnn`."""

    def __init__(self, channels: int, pixels: int, outputs: int, streams: int) -> None:
        super().__init__(nature(channels, pixels, 512), 512, outputs, streams)


class MinAtarCnn(SharedTrunk):
    """`network=minatar_cnn`, the network of Young and Tian 2019."""

    def __init__(self, channels: int, pixels: int, outputs: int, streams: int) -> None:
        trunk = nn.Sequential(
            ChannelsFirst(), Conv2d(channels, 16, kernel=3), Flatten(), Linear(16 * pixels, 128, "relu")
        )
        super().__init__(trunk, 128, outputs, streams)


class Residual(nn.Module):
    """A residual block (He et al. 2016)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Conv2d(channels, channels, kernel=3, padding=1, activation="relu")
        self.second = Conv2d(channels, channels, kernel=3, padding=1, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        """`x + second(first(relu(x)))`, of the shape of `x`."""
        return x + self.second(self.first(F.relu(x)))


class ImpalaCnn(SharedTrunk):
    """`network=impala_cnn`, the network of Espeholt et al. 2018 without its LSTM."""

    def __init__(self, channels: int, pixels: int, outputs: int, streams: int) -> None:
        sizes = (channels, 16, 32, 32)
        blocks = [
            nn.Sequential(
                Conv2d(sizes[block], sizes[block + 1], kernel=3, padding=1, activation=None),
                nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
                Residual(sizes[block + 1]),
                Residual(sizes[block + 1]),
            )
            for block in range(3)
        ]
        trunk = nn.Sequential(
            ChannelsFirst(), *blocks, nn.ReLU(inplace=True), Flatten(), Linear(32 * pixels, 256, "relu")
        )
        super().__init__(trunk, 256, outputs, streams)


class RndCnn(nn.Module):
    """`network=rnd_cnn`, the network of CleanRL's ppo_rnd_envpool.py."""

    def __init__(self, channels: int, pixels: int, outputs: int, streams: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nature(channels, pixels, 256), Linear(256, 448, "relu"))
        self.actor = nn.Sequential(Linear(448, 448, "relu"), Linear(448, outputs))
        self.extra = Linear(448, 448, "relu")
        self.critic = Linear(448, streams)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden + self.extra(hidden))
