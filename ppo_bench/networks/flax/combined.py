"""A network for dictionaries of images and numbers, in Flax."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.networks.convolutions import ImageEncoder, channels_last
from ppo_bench.networks.flax.cnn import nature
from ppo_bench.networks.flax.mlp import actor_and_critic


class Combined(nn.Module):
    """`network=combined`: actor and critic take the features of each image, and then all other numbers as they are."""

    image_encoders: Sequence[ImageEncoder]
    others: Sequence[tuple[int, int]]
    units: int
    takes_bytes: bool
    hidden_sizes: Sequence[int]
    outputs: int
    streams: int
    activation: str
    layer_norm: bool
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]` of flat observations `[B, D]`."""
        obs, image_features = obs / 255.0 if self.takes_bytes else obs, []
        for k, (image, *_) in enumerate(self.image_encoders):
            images = channels_last(jnp, obs[:, image.start : image.stop].reshape((-1, *image.shape)), image.shape)
            image_features.append(nature(images, self.units, self.by_products, first=4 * k))
        features = jnp.concatenate((*image_features, *(obs[:, start:stop] for start, stop in self.others)), -1)
        sizes = self.hidden_sizes, self.outputs, self.streams
        return actor_and_critic(features, *sizes, self.activation, self.layer_norm)
