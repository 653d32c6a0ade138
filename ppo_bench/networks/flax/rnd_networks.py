"""Predictor and target of random network distillation (Burda et al. 2018) in Flax."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax

from ppo_bench.networks.flax.cnn import flatten
from ppo_bench.networks.flax.layers import Conv, Dense, leaky_relu


def extra_predictor_layers(x: jax.Array, units: int, first: int) -> jax.Array:
    """Outputs of the two layers that the predictor has more than the target."""
    x = nn.relu(Dense(units, name=f"{first}")(nn.relu(x)))
    return Dense(units, name=f"{first + 1}")(x)


class ImageFeatures(nn.Module):
    """Features `[B, units]` of images `[B, H, W, C]`."""

    units: int
    is_predictor: bool
    by_products: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The features."""
        conv = functools.partial(Conv, by_products=self.by_products)
        x = leaky_relu(conv(32, kernel=8, stride=4, name="0")(x))
        x = leaky_relu(conv(64, kernel=4, stride=2, name="1")(x))
        x = leaky_relu(conv(64, kernel=3, stride=1, name="2")(x))
        x = Dense(self.units, name="3")(flatten(x))
        return extra_predictor_layers(x, self.units, first=4) if self.is_predictor else x


class VectorFeatures(nn.Module):
    """Features `[B, units]` of vectors `[B, inputs]`."""

    units: int
    is_predictor: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The features."""
        x = leaky_relu(Dense(self.units, name="0")(x))
        x = Dense(self.units, name="1")(x)
        return extra_predictor_layers(x, self.units, first=2) if self.is_predictor else x
