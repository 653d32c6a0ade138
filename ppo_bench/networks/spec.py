"""The choices of the group `network`: classes that build a `NetworkSpec` for an environment's spaces."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import is_byte_space
from ppo_bench.common.values import AT_LEAST_1, added_field, within
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.convolutions import (
    IMPALA,
    MIN_IMAGE_SIDE,
    NATURE,
    ImageEncoder,
    Window,
    are_images,
    find_images,
    impala_parameters,
    input_sizes,
    nature_parameters,
    ranges_between_images,
)
from ppo_bench.networks.layers import (
    ACTOR_GAIN,
    CRITIC_GAIN,
    Parameters,
    actor_critic_heads,
    conv,
    hidden_layers,
    linear,
    mlp,
    recurrent,
)
from ppo_bench.networks.module_spec import network_spec
from ppo_bench.networks.network import CarrySpec, NetworkSpec, action_spec

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Space

ACTIVATIONS = ("tanh", "relu", "leaky_relu", "elu", "gelu", "silu")
ACTIVATION = within(lambda value: value in ACTIVATIONS, f"choose one of {', '.join(ACTIVATIONS)}")
CELL = within(lambda value: value in CELLS, f"choose {' or '.join(CELLS)}")
EACH_AT_LEAST_1 = within(lambda sizes: all(size >= 1 for size in sizes), "every size must be at least 1")
IMAGE_FEATURES = 256
"""Features of each image in `combined`, as in Stable-Baselines3's extractor for dictionaries."""


@dataclass(frozen=True)
class Mlp:
    """`network=mlp`, a multilayer perceptron; conf/network/mlp.yaml explains its options."""

    hidden_sizes: list[int] = field(metadata=EACH_AT_LEAST_1)
    activation: str = field(metadata=ACTIVATION)
    _: KW_ONLY
    layer_norm: bool = added_field(False)

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces, with a value for each of `streams` reward streams."""
        inputs, actions = math.prod(observation_space.shape), action_spec(action_space)
        return network_spec(
            "mlp.Mlp",
            observation_space,
            actions,
            streams,
            self.actor_and_critic(inputs, actions.action_dim, streams),
            {**vars(self), "inputs": inputs},
            ("actor.0.weight", "critic.0.weight"),
            separate_critic=True,
        )

    def actor_and_critic(self, inputs: int, outputs: int, streams: int) -> Parameters:
        """Parameters of an actor with `outputs` and a critic, which share no layer."""
        return (
            *mlp("actor", [inputs, *self.hidden_sizes, outputs], ACTOR_GAIN, normalised=self.layer_norm),
            *mlp("critic", [inputs, *self.hidden_sizes, streams], CRITIC_GAIN, normalised=self.layer_norm),
        )


@dataclass(frozen=True)
class NatureCnn:
    """`network=nature_cnn`: the network of Mnih et al. 2015, shared by actor and critic (details, Atari 8)."""

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes = input_sizes("network=nature_cnn", observation_space.shape, NATURE)
        trunk = nature_parameters(**sizes, units=512)
        return _shared_cnn("cnn.NatureCnn", trunk, 512, sizes, observation_space, action_space, streams)


@dataclass(frozen=True)
class ImpalaCnn:
    """`network=impala_cnn`: the residual network of Espeholt et al. 2018 without its LSTM, as in Cobbe et al. 2020.

    Its hidden layers start as PyTorch's do by default, as in CleanRL's ppo_procgen.py.
    """

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes = input_sizes("network=impala_cnn", observation_space.shape, IMPALA)
        trunk = impala_parameters(**sizes)
        return _shared_cnn("cnn.ImpalaCnn", trunk, 256, sizes, observation_space, action_space, streams)


@dataclass(frozen=True)
class MinAtarCnn:
    """`network=minatar_cnn`: the network of Young and Tian 2019, shared by actor and critic."""

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes = input_sizes("network=minatar_cnn", observation_space.shape, (Window(3, 1),))
        trunk = (*conv("trunk.0", sizes["channels"], 16, kernel=3), *linear("trunk.1", 16 * sizes["pixels"], 128))
        return _shared_cnn("cnn.MinAtarCnn", trunk, 128, sizes, observation_space, action_space, streams)


@dataclass(frozen=True)
class RndCnn:
    """`network=rnd_cnn`: the network of CleanRL's ppo_rnd_envpool.py, after Burda et al. 2018."""

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes = input_sizes("network=rnd_cnn", observation_space.shape, NATURE)
        trunk = (*nature_parameters(**sizes, units=256), *linear("trunk.4", 256, 448))
        actor_critic = (
            *linear("actor.0", 448, 448, gain=0.01),
            *linear("actor.1", 448, action_spec(action_space).action_dim, gain=ACTOR_GAIN),
            *linear("critic.0", 448, 448, gain=0.1),
            *linear("critic.1", 448, streams, gain=0.01),
        )
        return _shared_cnn("cnn.RndCnn", trunk, 448, sizes, observation_space, action_space, streams, actor_critic)


@dataclass(frozen=True)
class Combined(Mlp):
    """`network=combined`: convolutions for each image of flattened dictionaries; conf/network/combined.yaml."""

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        images = find_images(observation_space)
        if not images:
            raise ConfigError(
                f"network=combined takes dictionaries with images from {MIN_IMAGE_SIDE} x {MIN_IMAGE_SIDE} pixels, of "
                "which env.observe leaves none: use network=auto"
            )
        image_encoders = [ImageEncoder(i, **input_sizes("network=combined", i.shape, NATURE)) for i in images]
        others, actions = ranges_between_images(images, observation_space.shape[0]), action_spec(action_space)
        features = IMAGE_FEATURES * len(image_encoders) + sum(stop - start for start, stop in others)
        encoder_parameters = (
            nature_parameters(encoder.channels, encoder.pixels, IMAGE_FEATURES, first=4 * k)
            for k, encoder in enumerate(image_encoders)
        )
        return network_spec(
            "combined.Combined",
            observation_space,
            actions,
            streams,
            (
                *(p for encoder in encoder_parameters for p in encoder),
                *self.actor_and_critic(features, actions.action_dim, streams),
            ),
            {
                **vars(self),
                "image_encoders": image_encoders,
                "others": others,
                "units": IMAGE_FEATURES,
                "takes_bytes": is_byte_space(observation_space),
            },
            (),
        )


@dataclass(frozen=True)
class Auto(Mlp):
    """`network=auto`: the network that fits the observations; conf/network/auto.yaml lists the cases."""

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        shape = observation_space.shape
        network: NatureCnn | ImpalaCnn | MinAtarCnn | Mlp = Mlp(**vars(self))
        if find_images(observation_space):
            network = Combined(**vars(self))
        elif are_images(shape, observation_space.dtype):
            network = ImpalaCnn() if sorted(shape) == [3, 64, 64] else NatureCnn()
        elif len(shape) == 3 and observation_space.dtype == bool:
            network = MinAtarCnn()
        return network.build(observation_space, action_space, streams)


@dataclass(frozen=True)
class RecurrentMlp:
    """`network=lstm` and `network=gru`: hidden layers of an MLP and a recurrent cell, shared by actor and critic."""

    cell: str = field(metadata=CELL)
    units: int = field(metadata=AT_LEAST_1)
    hidden_sizes: list[int] = field(metadata=EACH_AT_LEAST_1)
    activation: str = field(metadata=ACTIVATION)
    _: KW_ONLY
    layer_norm: bool = added_field(False)

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes, actions = [math.prod(observation_space.shape), *self.hidden_sizes], action_spec(action_space)
        return network_spec(
            "recurrent.RecurrentMlp",
            observation_space,
            actions,
            streams,
            (
                *hidden_layers("trunk", sizes, normalised=self.layer_norm),
                *actor_critic_heads(self.units, actions.action_dim, streams),
                *recurrent("memory", self.cell, sizes[-1], self.units),
            ),
            {**vars(self), "inputs": sizes[0]},
            ("trunk.0.weight" if self.hidden_sizes else "memory.weight_ih",),
            carry=_remembering(self.cell, self.units),
        )


@dataclass(frozen=True)
class RecurrentCnn:
    """`network=lstm_cnn`: a recurrent cell after the network of Mnih et al. 2015."""

    cell: str = field(metadata=CELL)
    units: int = field(metadata=AT_LEAST_1)

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> NetworkSpec:
        """The network for these spaces; see `Mlp.build`."""
        sizes, actions = input_sizes("network=lstm_cnn", observation_space.shape, NATURE), action_spec(action_space)
        return network_spec(
            "recurrent.RecurrentCnn",
            observation_space,
            actions,
            streams,
            (
                *nature_parameters(**sizes, units=512),
                *actor_critic_heads(self.units, actions.action_dim, streams),
                *recurrent("memory", self.cell, 512, self.units),
            ),
            {**vars(self), **sizes},
            images=True,
            carry=_remembering(self.cell, self.units),
        )


def _shared_cnn(
    name: str,
    trunk: Parameters,
    units: int,
    sizes: dict[str, Any],
    observation_space: Box,
    action_space: Space,
    streams: int,
    actor_critic: Parameters = (),
) -> NetworkSpec:
    """A network of `trunk` with `units` outputs and of actor and critic: `actor_critic`, or one layer each."""
    actions = action_spec(action_space)
    parameters = (*trunk, *(actor_critic or actor_critic_heads(units, actions.action_dim, streams)))
    return network_spec(name, observation_space, actions, streams, parameters, sizes, images=True)


def _remembering(cell: str, units: int) -> tuple[CarrySpec, ...]:
    """The carry of a network with a recurrent cell.

    A minibatch has whole environments. Gradients flow through all steps of a rollout, from the carry with which the
    rollout began. There is no burn-in: during an update that carry stays the one that the older parameters computed.
    """
    return tuple(CarrySpec(name, (units,)) for name in CELLS[cell].states)
