"""A network for dictionaries of images and numbers, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ppo_bench.networks.convolutions import Eye, channels_last
from ppo_bench.networks.torch.cnn import nature
from ppo_bench.networks.torch.mlp import Mlp


class Combined(nn.Module):
    """`network=combined`: actor and critic take the features of each image, and then all other numbers as they are."""

    def __init__(
        self,
        eyes: Sequence[Eye],
        others: Sequence[tuple[int, int]],
        units: int,
        of_bytes: bool,
        hidden_sizes: Sequence[int],
        outputs: int,
        streams: int,
        activation: str,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        self._images, self._others, self._of_bytes = [eye.image for eye in eyes], others, of_bytes
        self.eyes = nn.ModuleList(nature(eye.channels, eye.pixels, units) for eye in eyes)
        inputs = units * len(eyes) + sum(stop - start for start, stop in others)
        self.behind = Mlp(inputs, hidden_sizes, outputs, streams, activation, layer_norm)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]` of flat observations `[B, D]`."""
        obs = obs / 255.0 if self._of_bytes else obs
        seen = []
        for image, eye in zip(self._images, self.eyes, strict=True):
            images = obs[:, image.start : image.stop].reshape((-1, *image.shape))
            seen.append(eye(channels_last(torch, images, image.shape)))
        result: tuple[Tensor, Tensor] = self.behind(torch.cat((*seen, *(obs[:, a:b] for a, b in self._others)), -1))
        return result
