"""Parts that networks for different spaces have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import is_byte_space
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import Window, image_sides, num_channels, num_output_pixels
from ppo_bench.networks.layers import ACTOR_GAIN, CRITIC_GAIN, Parameters, linear
from ppo_bench.networks.module_spec import ModuleSpec, options
from ppo_bench.networks.network import ActionSpec, NetworkSpec

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Space

ACTIVATIONS = ("tanh", "relu", "leaky_relu", "elu", "gelu", "silu")


def network_spec(
    module: ModuleSpec, observation_space: Box, actions: ActionSpec, first: tuple[str, ...], **fields: Any
) -> NetworkSpec:
    """The network of `module` for these spaces; `first` are the names of the weights that meet the observations."""
    arrays = list(module.parameters)
    if not actions.choices:
        position = max(i for i, p in enumerate(arrays) if p.name.startswith("critic.")) + 1
        arrays.insert(position, Parameter("actor.log_std", (actions.action_dim,), None))
    takes_bytes = is_byte_space(observation_space)
    return NetworkSpec(
        module,
        tuple(arrays),
        observation_space.shape,
        takes_bytes,
        actions,
        scaled_weights=first if takes_bytes else (),
        **fields,
    )


def hidden_layer_options(hidden_sizes: list[int], activation: str, layer_norm: bool) -> dict[str, Any]:
    """Options of hidden layers. Raises `ConfigError` if one is out of range."""
    if activation not in ACTIVATIONS:
        raise ConfigError(f"network.activation={activation}: choose one of {', '.join(ACTIVATIONS)}")
    if any(size < 1 for size in hidden_sizes):
        raise ConfigError(f"network.hidden_sizes={list(hidden_sizes)}: every size must be at least 1")
    return {"hidden_sizes": list(hidden_sizes), "activation": activation, "layer_norm": layer_norm}


def actor_critic_heads(units: int, outputs: int, streams: int) -> Parameters:
    """Parameters of one layer each of actor and critic."""
    return (
        *linear("actor.0", units, outputs, gain=ACTOR_GAIN),
        *linear("critic.0", units, streams, gain=CRITIC_GAIN),
    )


def num_pixels(name: str, shape: tuple[int, ...], windows: tuple[Window, ...]) -> int:
    """Number of pixels that the convolutions of the network `name` make of images of `shape`.

    Raises `ConfigError` if there are none.
    """
    pixels = num_output_pixels(windows, *image_sides(shape))
    if pixels < 1:
        raise ConfigError(f"network={name}: images of shape {shape} are too small for it; use network=mlp or lstm")
    return pixels


def shared_cnn(
    name: str,
    trunk: Parameters,
    units: int,
    pixels: int,
    observation_space: Box,
    action_space: Space,
    streams: int,
    actor_critic: Parameters = (),
    **fields: Any,
) -> NetworkSpec:
    """A network of `trunk` with `units` outputs and of actor and critic: `actor_critic`, or one layer each."""
    actions = action_spec(action_space)
    module = ModuleSpec(
        name,
        options(outputs=actions.action_dim, streams=streams),
        (*trunk, *(actor_critic or actor_critic_heads(units, actions.action_dim, streams))),
        inputs=options(channels=num_channels(observation_space.shape), pixels=pixels),
        convolves=True,
    )
    return network_spec(module, observation_space, actions, ("trunk.0.weight",), images=True, **fields)


def action_spec(action_space: Space) -> ActionSpec:
    """The actions of a gymnasium space: one integer, several integers, or a vector of floats."""
    from gymnasium import spaces

    if isinstance(action_space, spaces.Discrete):
        return ActionSpec((), (int(action_space.n),))
    if isinstance(action_space, spaces.MultiDiscrete):
        return ActionSpec(action_space.shape, tuple(int(n) for n in action_space.nvec))
    if isinstance(action_space, spaces.MultiBinary):
        return ActionSpec(action_space.shape, (2,) * action_space.shape[0])
    return ActionSpec(action_space.shape or (), ())
