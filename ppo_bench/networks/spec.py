"""What a network is, apart from any framework: its layers, its parameters and the policy on top.

A network is an optional shared trunk, an actor and a critic, each a chain of layers. Frameworks execute the same spec
with `(params, obs, carry, start)`; these networks are feed-forward, so their carry is `()` and `start` goes unread.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_bench import ppo
from ppo_bench.errors import ConfigError
from ppo_bench.networks.layers import HIDDEN_GAIN, Conv, ImageLayer, Linear, MaxPool, Residual
from ppo_bench.weights import Parameter

if TYPE_CHECKING:
    import gymnasium

ACTOR_GAIN = 0.01  # orthogonal gains: details, 2
CRITIC_GAIN = 1.0
IMPALA_GAIN = 1.0 / math.sqrt(3.0)
"""Of hidden layers of `impala_cnn`: the variance that PyTorch gives their entries, which CleanRL leaves as it is."""


@dataclass(frozen=True)
class Actions:
    """What a policy chooses."""

    shape: tuple[int, ...]
    """Of one action: `()` for one choice, `(K,)` for K choices or K dimensions."""
    choices: tuple[int, ...]
    """How many each component chooses from; empty for vectors of floats."""

    @property
    def lanes(self) -> int:
        """Outputs of the actor for one action."""
        return sum(self.choices) or self.shape[0]


@dataclass(frozen=True)
class NetworkSpec:
    """Layers from observations to `(head, value)`; see the module's docstring."""

    convolutions: tuple[ImageLayer, ...]
    """Shared; empty where observations are not images."""
    trunk: tuple[Linear, ...]
    """Shared, after the convolutions; may be empty."""
    actor: tuple[Linear, ...]
    critic: tuple[Linear, ...]
    observation_shape: tuple[int, ...]
    """Of one observation as the environment gives it."""
    uint8: bool
    """Observations are bytes: they stay bytes until the network, to which 255 is 1; see `scaled_weights`."""
    actions: Actions

    @property
    def discrete(self) -> bool:
        """Whether actions are choices (integers), not vectors of floats."""
        return bool(self.actions.choices)

    @property
    def num_actions(self) -> int:
        """Lanes of the actor's output: all choices together, or dimensions."""
        return self.actions.lanes

    @property
    def distribution(self) -> ppo.Distribution:
        """The family of policies that the actor's output parametrises."""
        if not self.discrete:
            return ppo.NORMAL
        return ppo.CATEGORICAL if self.actions.shape == () else ppo.multi_categorical(self.actions.choices)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every array, in the order of the layers; a normal policy's `actor.log_std` comes last."""
        layers: tuple[ImageLayer | Linear, ...] = (*self.convolutions, *self.trunk, *self.actor, *self.critic)
        arrays = tuple(parameter for layer in layers for parameter in layer.parameters())
        return arrays if self.discrete else (*arrays, Parameter("actor.log_std", (self.num_actions,), None))

    @property
    def scaled_weights(self) -> tuple[str, ...]:
        """The weights that bytes meet first, divided by 255 in use: so that the bytes, which are many, need not be."""
        if not self.uint8:
            return ()
        first = (*self.convolutions, *self.trunk)[:1] or (self.actor[0], self.critic[0])
        return tuple(layer.parameters()[0].name for layer in first)

    def arrange(self, observations: np.ndarray) -> np.ndarray:
        """A view `[N, ...]` of observations as the network takes them: images channels last, all else flat."""
        if not self.convolutions:
            return observations.reshape(observations.shape[0], -1)
        return np.moveaxis(observations, 1, -1) if _channels_first(self.observation_shape) else observations

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one observation as `arrange` returns it."""
        return self.arrange(np.empty((1, *self.observation_shape), np.uint8)).shape[1:]


@dataclass(frozen=True)
class Mlp:
    """`network=mlp`; see conf/network/mlp.yaml."""

    hidden_sizes: list[int]
    activation: str

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        if self.activation not in ("tanh", "relu"):
            raise ConfigError(f"network.activation={self.activation}: choose tanh or relu")
        if any(size < 1 for size in self.hidden_sizes):
            raise ConfigError(f"network.hidden_sizes={list(self.hidden_sizes)}: every size must be at least 1")
        actions = _actions(action_space)

        def chain(part: str, outputs: int, gain: float) -> tuple[Linear, ...]:
            sizes = [math.prod(observation_space.shape), *self.hidden_sizes]
            hidden = [
                Linear(f"{part}.{i}", sizes[i], sizes[i + 1], HIDDEN_GAIN, self.activation)  # type: ignore[arg-type]
                for i in range(len(self.hidden_sizes))
            ]
            return (*hidden, Linear(f"{part}.{len(hidden)}", sizes[-1], outputs, gain))

        return NetworkSpec(
            convolutions=(),
            trunk=(),
            actor=chain("actor", actions.lanes, ACTOR_GAIN),
            critic=chain("critic", 1, CRITIC_GAIN),
            observation_shape=observation_space.shape,
            uint8=observation_space.dtype == np.uint8,
            actions=actions,
        )


@dataclass(frozen=True)
class NatureCnn:
    """`network=nature_cnn`: the network of Mnih et al. 2015, shared by actor and critic (details, Atari 8)."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        channels = _channels("nature_cnn", observation_space.shape)
        convolutions = (
            Conv("trunk.0", channels, 32, kernel=8, stride=4),
            Conv("trunk.1", 32, 64, kernel=4, stride=2),
            Conv("trunk.2", 64, 64, kernel=3, stride=1),
        )
        return _shared_cnn("nature_cnn", convolutions, 64, 512, observation_space, action_space)


@dataclass(frozen=True)
class ImpalaCnn:
    """`network=impala_cnn`: the deep network of Espeholt et al. 2018 without its LSTM, as Cobbe et al. 2020 use it."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        channels = (_channels("impala_cnn", observation_space.shape), 16, 32, 32)
        layers: list[Any] = [
            layer for block in range(3) for layer in _impala_block(block, *channels[block : block + 2])
        ]
        # A rectifier precedes the linear layer as it does every convolution but the first.
        layers[-1] = dataclasses.replace(layers[-1], activation="relu")
        return _shared_cnn("impala_cnn", tuple(layers), 32, 256, observation_space, action_space, IMPALA_GAIN)


def _impala_block(block: int, inputs: int, outputs: int) -> tuple[Conv, MaxPool, Residual, Residual]:
    same = Conv(f"trunk.{5 * block}", outputs, outputs, 3, 1, padding=1, gain=IMPALA_GAIN, activation=None)
    first = dataclasses.replace(same, inputs=inputs)

    def residual(index: int) -> Residual:
        one, two = (dataclasses.replace(same, name=f"trunk.{5 * block + i}") for i in (index, index + 1))
        return Residual(dataclasses.replace(one, activation="relu"), two)

    return first, MaxPool(), residual(1), residual(3)


@dataclass(frozen=True)
class MinAtarCnn:
    """`network=minatar_cnn`: the network of Young and Tian 2019, shared by actor and critic."""

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        convolutions = (Conv("trunk.0", _channels("minatar_cnn", observation_space.shape), 16, kernel=3, stride=1),)
        return _shared_cnn("minatar_cnn", convolutions, 16, 128, observation_space, action_space)


def _channels(network: str, shape: tuple[int, ...]) -> int:
    if len(shape) != 3:
        raise ConfigError(f"network={network} takes images, not observations of shape {shape}: use network=mlp")
    return shape[0] if _channels_first(shape) else shape[2]


def _shared_cnn(
    network: str,
    convolutions: tuple[ImageLayer, ...],
    channels: int,
    units: int,
    observation_space: gymnasium.spaces.Box,
    action_space: gymnasium.Space,
    gain: float = HIDDEN_GAIN,
) -> NetworkSpec:
    """Image layers up to `channels` and a linear one of `units`, shared by an actor and a critic of one layer each."""
    shape = observation_space.shape
    height, width = shape[1:] if _channels_first(shape) else shape[:2]
    for layer in convolutions:
        height, width = layer.output_size(height), layer.output_size(width)
    if min(height, width) < 1:
        raise ConfigError(f"network={network}: images of shape {shape} are too small for it; use network=mlp")
    actions = _actions(action_space)
    weights = sum(len(layer.parameters()) for layer in convolutions) // 2
    return NetworkSpec(
        convolutions=convolutions,
        trunk=(Linear(f"trunk.{weights}", height * width * channels, units, gain, "relu"),),
        actor=(Linear("actor.0", units, actions.lanes, ACTOR_GAIN),),
        critic=(Linear("critic.0", units, 1, CRITIC_GAIN),),
        observation_shape=shape,
        uint8=observation_space.dtype == np.uint8,
        actions=actions,
    )


@dataclass(frozen=True)
class Auto:
    """`network=auto`: by the observations; see conf/network/auto.yaml."""

    hidden_sizes: list[int]
    activation: str

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> NetworkSpec:
        """The network for these spaces."""
        shape = observation_space.shape
        network: NatureCnn | ImpalaCnn | MinAtarCnn | Mlp = Mlp(self.hidden_sizes, self.activation)
        if sorted(shape) == [3, 64, 64] and observation_space.dtype == np.uint8:
            network = ImpalaCnn()
        elif len(shape) == 3 and observation_space.dtype == np.uint8 and sorted(shape)[1] >= 36:
            network = NatureCnn()
        elif len(shape) == 3 and observation_space.dtype == bool:
            network = MinAtarCnn()
        return network.build(observation_space, action_space)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] < shape[-1]


def _actions(action_space: gymnasium.Space) -> Actions:
    """The policy that fits a space: one categorical, several side by side, or a diagonal normal one."""
    from gymnasium import spaces

    if isinstance(action_space, spaces.Discrete):
        return Actions((), (int(action_space.n),))
    if isinstance(action_space, spaces.MultiDiscrete):
        return Actions(action_space.shape, tuple(int(n) for n in action_space.nvec))
    if isinstance(action_space, spaces.MultiBinary):
        return Actions(action_space.shape, (2,) * action_space.shape[0])
    return Actions(action_space.shape or (), ())
