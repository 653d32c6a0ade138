"""Convolutional networks in Flax, shared by actor and critic; `obs [B, H, W, C]` has its channels last."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax

from ppo_bench.networks.flax.layers import Conv, Dense, max_pool


def nature(x: jax.Array, units: int, by_products: bool, first: int = 0) -> jax.Array:
    """The convolutions of Mnih et al. 2015 and a linear layer of `units`; their names count from `trunk.<first>`."""
    conv = functools.partial(Conv, by_products=by_products)
    x = nn.relu(conv(32, kernel=8, stride=4, name=f"trunk.{first}")(x))
    x = nn.relu(conv(64, kernel=4, stride=2, name=f"trunk.{first + 1}")(x))
    x = nn.relu(conv(64, kernel=3, stride=1, name=f"trunk.{first + 2}")(x))
    return nn.relu(Dense(units, name=f"trunk.{first + 3}")(flatten(x)))


def flatten(x: jax.Array) -> jax.Array:
    """`[B, H, W, C]` to `[B, H * W * C]`."""
    return x.reshape(x.shape[0], -1)


def actor_critic_heads(hidden: jax.Array, outputs: int, streams: int) -> tuple[jax.Array, jax.Array]:
    """The policy's outputs `[..., outputs]` and values `[..., streams]`, by one layer each."""
    return Dense(outputs, name="actor.0")(hidden), Dense(streams, name="critic.0")(hidden)


class NatureCnn(nn.Module):
    """`network=nature_cnn`."""

    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        hidden = nature(obs, 512, self.by_products)
        return actor_critic_heads(hidden, self.outputs, self.streams)


class MinAtarCnn(nn.Module):
    """`network=minatar_cnn`, the network of Young and Tian 2019."""

    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        x = nn.relu(Conv(16, kernel=3, by_products=self.by_products, name="trunk.0")(obs))
        hidden = nn.relu(Dense(128, name="trunk.1")(flatten(x)))
        return actor_critic_heads(hidden, self.outputs, self.streams)


class ImpalaCnn(nn.Module):
    """`network=impala_cnn`, the network of Espeholt et al. 2018 without its LSTM."""

    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        conv, x = functools.partial(Conv, kernel=3, padding=1, by_products=self.by_products), obs
        for block, channels in enumerate((16, 32, 32)):
            x = max_pool(conv(channels, name=f"trunk.{5 * block}")(x), self.by_products)
            for first in (5 * block + 1, 5 * block + 3):  # two residual blocks (He et al. 2016)
                y = nn.relu(conv(channels, name=f"trunk.{first}")(nn.relu(x)))
                x = x + conv(channels, name=f"trunk.{first + 1}")(y)
        hidden = nn.relu(Dense(256, name="trunk.15")(flatten(nn.relu(x))))
        return actor_critic_heads(hidden, self.outputs, self.streams)


class RndCnn(nn.Module):
    """`network=rnd_cnn`, the network of CleanRL's ppo_rnd_envpool.py."""

    outputs: int
    streams: int
    by_products: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The policy's outputs `[B, outputs]` and values `[B, streams]`."""
        hidden = nn.relu(Dense(448, name="trunk.4")(nature(obs, 256, self.by_products)))
        actor = nn.relu(Dense(448, name="actor.0")(hidden))
        critic = hidden + nn.relu(Dense(448, name="critic.0")(hidden))
        return Dense(self.outputs, name="actor.1")(actor), Dense(self.streams, name="critic.1")(critic)
