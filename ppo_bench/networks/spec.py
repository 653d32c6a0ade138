"""The choices of the group `network`: classes that build a `NetworkSpec` for an environment's spaces."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, get_args

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import younger
from ppo_bench.mathematics.normalize import are_bytes
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.combined import CombinedSpec, Eye, besides, images_in
from ppo_bench.networks.convolutions import (
    LEAST_PIXELS,
    are_images,
    channels_of,
    impala,
    nature,
    pixels_after,
    sides_of,
)
from ppo_bench.networks.layers import HIDDEN_GAIN, Activation, Conv, ImageLayer, Linear, Recurrence
from ppo_bench.networks.network import Actions, NetworkSpec
from ppo_bench.networks.recurrent import RecurrentSpec

if TYPE_CHECKING:
    import gymnasium

ACTOR_GAIN = 0.01  # gains of the orthogonal initialisation of output layers (details, 2)
CRITIC_GAIN = 1.0
IMAGE_FEATURES = 256
"""Features of each image in `combined`, as in Stable-Baselines3's extractor for dictionaries."""


@dataclass(frozen=True)
class Mlp:
    """`network=mlp`, a multilayer perceptron; conf/network/mlp.yaml explains its options."""

    hidden_sizes: list[int]
    activation: str
    _: KW_ONLY
    layer_norm: bool = younger(False)

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        return NetworkSpec(**_separate(self, math.prod(observation_space.shape), observation_space, action_space))


def _separate(
    options: Mlp, inputs: int, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space
) -> dict[str, Any]:
    """Fields of a `NetworkSpec` whose actor and critic share no layer and have `inputs` each.

    Raises `ConfigError` if an option is out of range.
    """
    hidden_sizes, activation = options.hidden_sizes, options.activation
    if activation not in (known := get_args(Activation)):
        raise ConfigError(f"network.activation={activation}: choose one of {', '.join(known)}")
    if any(size < 1 for size in hidden_sizes):
        raise ConfigError(f"network.hidden_sizes={list(hidden_sizes)}: every size must be at least 1")

    def chain(part: str, outputs: int, gain: float) -> tuple[Linear, ...]:
        sizes = [inputs, *hidden_sizes]
        hidden = [
            Linear(
                f"{part}.{i}",
                sizes[i],
                sizes[i + 1],
                HIDDEN_GAIN,
                activation,  # type: ignore[arg-type]
                normalised=options.layer_norm,
            )
            for i in range(len(hidden_sizes))
        ]
        return (*hidden, Linear(f"{part}.{len(hidden)}", sizes[-1], outputs, gain))

    actions = actions_of(action_space)
    return {
        "convolutions": (),
        "trunk": (),
        "actor": chain("actor", actions.lanes, ACTOR_GAIN),
        "critic": chain("critic", 1, CRITIC_GAIN),
        "observation_shape": observation_space.shape,
        "uint8": are_bytes(observation_space),
        "actions": actions,
    }


@dataclass(frozen=True)
class NatureCnn:
    """`network=nature_cnn`: the network of Mnih et al. 2015, shared by actor and critic (details, Atari 8).

    conf/network/nature_cnn.yaml explains its option.
    """

    undivided_channels: int = younger(0)

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        channels = channels_of(observation_space.shape)
        spec = nature_network("nature_cnn", observation_space, action_space)
        if not 0 <= self.undivided_channels < channels:
            raise ConfigError(f"network.undivided_channels={self.undivided_channels}: images have {channels} channels")
        return dataclasses.replace(spec, undivided_channels=self.undivided_channels)


@dataclass(frozen=True)
class ImpalaCnn:
    """`network=impala_cnn`: the residual network of Espeholt et al. 2018 without its LSTM, as in Cobbe et al. 2020.

    Its hidden layers start as PyTorch's do by default, as in CleanRL's ppo_procgen.py.
    """

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        layers: list[Any] = list(impala(channels_of(observation_space.shape)))
        # The linear layer has a ReLU before it, as every convolution but the first has.
        layers[-1] = dataclasses.replace(layers[-1], activation="relu")
        spec = _shared_cnn("impala_cnn", tuple(layers), 32, 256, observation_space, action_space)
        return dataclasses.replace(spec, trunk=(dataclasses.replace(spec.trunk[0], gain=None, uniform_bias=True),))


@dataclass(frozen=True)
class MinAtarCnn:
    """`network=minatar_cnn`: the network of Young and Tian 2019, shared by actor and critic."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        convolutions = (Conv("trunk.0", channels_of(observation_space.shape), 16, kernel=3, stride=1),)
        return _shared_cnn("minatar_cnn", convolutions, 16, 128, observation_space, action_space)


@dataclass(frozen=True)
class RndCnn:
    """`network=rnd_cnn`: the network of CleanRL's ppo_rnd_envpool.py, after Burda et al. 2018."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        cnn = nature_network("rnd_cnn", observation_space, action_space)
        flat, wide = cnn.trunk[0], functools.partial(Linear, inputs=448, outputs=448, activation="relu")
        return dataclasses.replace(
            cnn,
            trunk=(dataclasses.replace(flat, outputs=256), Linear("trunk.4", 256, 448, HIDDEN_GAIN, "relu")),
            actor=(wide("actor.0", gain=0.01), Linear("actor.1", 448, cnn.actions.lanes, ACTOR_GAIN)),
            critic=(wide("critic.0", gain=0.1, residual=True), Linear("critic.1", 448, 1, 0.01)),
        )


def nature_network(network: str, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
    """The network of Mnih et al. 2015 for the choice `network`."""
    convolutions = nature(channels_of(observation_space.shape))
    return _shared_cnn(network, convolutions, 64, 512, observation_space, action_space)


def _shared_cnn(
    network: str,
    convolutions: tuple[ImageLayer, ...],
    channels: int,
    units: int,
    observation_space: gymnasium.spaces.Box,
    action_space: gymnasium.Space,
) -> NetworkSpec:
    """A network of image layers with `channels` outputs and a linear layer of `units`, shared by actor and critic.

    Actor and critic have one layer each. `network` is the choice's name, for messages.
    """
    shape = observation_space.shape
    pixels = pixels_after(convolutions, *sides_of(shape))
    if pixels < 1:
        raise ConfigError(f"network={network}: images of shape {shape} are too small for it; use network=mlp or lstm")
    actions = actions_of(action_space)
    weights = sum(len(layer.parameters()) for layer in convolutions) // 2
    return NetworkSpec(
        convolutions=convolutions,
        trunk=(Linear(f"trunk.{weights}", pixels * channels, units, HIDDEN_GAIN, "relu"),),
        actor=(Linear("actor.0", units, actions.lanes, ACTOR_GAIN),),
        critic=(Linear("critic.0", units, 1, CRITIC_GAIN),),
        observation_shape=shape,
        uint8=are_bytes(observation_space),
        actions=actions,
    )


@dataclass(frozen=True)
class Combined(Mlp):
    """`network=combined`: convolutions for each image of flattened dictionaries; conf/network/combined.yaml."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> CombinedSpec:
        """The network for these spaces."""
        images = images_in(observation_space)
        if not images:
            raise ConfigError(
                f"network=combined takes dictionaries with images from {LEAST_PIXELS} x {LEAST_PIXELS} pixels, of "
                "which env.observe leaves none: use network=auto"
            )
        eyes: list[Eye] = []
        for image in images:
            first = 4 * len(eyes)
            convolutions = nature(channels_of(image.shape), first=first)
            inputs = 64 * pixels_after(convolutions, *sides_of(image.shape))
            eyes.append(
                Eye(image, convolutions, Linear(f"trunk.{first + 3}", inputs, IMAGE_FEATURES, HIDDEN_GAIN, "relu"))
            )
        others = besides(images, observation_space.shape[0])
        features = IMAGE_FEATURES * len(eyes) + sum(stop - start for start, stop in others)
        return CombinedSpec(**_separate(self, features, observation_space, action_space), eyes=tuple(eyes))


@dataclass(frozen=True)
class Auto(Mlp):
    """`network=auto`: the network that fits the observations; conf/network/auto.yaml lists the cases."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        shape = observation_space.shape
        network: NatureCnn | ImpalaCnn | MinAtarCnn | Mlp = Mlp(**vars(self))
        if images_in(observation_space):
            network = Combined(**vars(self))
        elif are_images(shape, observation_space.dtype):
            network = ImpalaCnn() if sorted(shape) == [3, 64, 64] else NatureCnn()
        elif len(shape) == 3 and observation_space.dtype == bool:
            network = MinAtarCnn()
        return network.build(observation_space, action_space)


@dataclass(frozen=True)
class RecurrentMlp:
    """`network=lstm` and `network=gru`: hidden layers of an MLP and a recurrent cell, shared by actor and critic."""

    cell: str
    units: int
    hidden_sizes: list[int]
    activation: str
    _: KW_ONLY
    layer_norm: bool = younger(False)

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        mlp = Mlp(self.hidden_sizes, self.activation, layer_norm=self.layer_norm).build(observation_space, action_space)
        trunk = tuple(dataclasses.replace(layer, name=f"trunk.{i}") for i, layer in enumerate(mlp.actor[:-1]))
        features = mlp.actor[-1].inputs
        return _recurrent(dataclasses.replace(mlp, trunk=trunk), self.cell, features, self.units)


@dataclass(frozen=True)
class RecurrentCnn:
    """`network=lstm_cnn`: a recurrent cell after the network of Mnih et al. 2015."""

    cell: str
    units: int

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        cnn = nature_network("lstm_cnn", observation_space, action_space)
        return _recurrent(cnn, self.cell, cnn.trunk[-1].outputs, self.units)


def _recurrent(network: NetworkSpec, cell: str, features: int, units: int) -> RecurrentSpec:
    """`network` with a recurrent cell of `units` after its trunk, whose output has `features` units.

    Actor and critic have one layer each. Raises `ConfigError` if `cell` is unknown or `units` is below 1.
    """
    if cell not in CELLS:
        raise ConfigError(f"network.cell={cell}: choose {' or '.join(CELLS)}")
    if units < 1:
        raise ConfigError(f"network.units={units}: must be at least 1")
    parts = {field.name: getattr(network, field.name) for field in dataclasses.fields(network)}
    parts |= {
        "actor": (Linear("actor.0", units, network.actions.lanes, ACTOR_GAIN),),
        "critic": (Linear("critic.0", units, 1, CRITIC_GAIN),),
    }
    return RecurrentSpec(**parts, memory=Recurrence("memory", cell, features, units))  # type: ignore[arg-type]


def actions_of(action_space: gymnasium.Space) -> Actions:
    """The actions of a gymnasium space: one integer, several integers, or a vector of floats."""
    from gymnasium import spaces

    if isinstance(action_space, spaces.Discrete):
        return Actions((), (int(action_space.n),))
    if isinstance(action_space, spaces.MultiDiscrete):
        return Actions(action_space.shape, tuple(int(n) for n in action_space.nvec))
    if isinstance(action_space, spaces.MultiBinary):
        return Actions(action_space.shape, (2,) * action_space.shape[0])
    return Actions(action_space.shape or (), ())
