"""A network for dictionaries of images and numbers, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ppo_bench.networks.convolutions import ImageEncoder, channels_last
from ppo_bench.networks.torch.cnn import nature
from ppo_bench.networks.torch.mlp import Mlp


class Combined(nn.Module):
    """`network=combined`: actor and critic take the features of each image, and then all other numbers as they are."""

    def __init__(
        self,
        image_encoders: Sequence[ImageEncoder],
        others: Sequence[tuple[int, int]],
        units: int,
        takes_bytes: bool,
        hidden_sizes: Sequence[int],
        outputs: int,
        streams: int,
        activation: str,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        self._images, self._others, self._takes_bytes = (
            [encoder.image for encoder in image_encoders],
            others,
            takes_bytes,
        )
        self.image_encoders = nn.ModuleList(
            nature(encoder.channels, encoder.pixels, units) for encoder in image_encoders
        )
        inputs = units * len(image_encoders) + sum(stop - start for start, stop in others)
        self.mlp = Mlp(inputs, hidden_sizes, outputs, streams, activation, layer_norm)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]` of flat observations `[B, D]`."""
        obs = obs / 255.0 if self._takes_bytes else obs
        image_features = []
        for image, encoder in zip(self._images, self.image_encoders, strict=True):
            images = obs[:, image.start : image.stop].reshape((-1, *image.shape))
            image_features.append(encoder(channels_last(torch, images, image.shape)))
        result: tuple[Tensor, Tensor] = self.mlp(
            torch.cat((*image_features, *(obs[:, a:b] for a, b in self._others)), -1)
        )
        return result
