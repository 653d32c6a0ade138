"""The modules of a network: a `torch.nn.Module` and a `flax.linen.Module` of the same name, and their parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppo_bench.common.flattened import is_byte_space
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import ActionSpec, NetworkSpec

if TYPE_CHECKING:
    from gymnasium.spaces import Box

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class ModuleSpec:
    """A module that both frameworks have: `networks/torch/<file>.py` and `networks/flax/<file>.py` have its class."""

    name: str
    """File and class, as in `cnn.NatureCnn`."""
    parameters: tuple[Parameter, ...]
    """The parameters: PyTorch's module takes them in this order, Flax's by their names."""
    options: Options
    """Arguments of the constructor. Flax's takes those for which it has a field, since it infers sizes of inputs."""

    def __hash__(self) -> int:
        """A hash that takes no time, since each call of the module looks it up."""
        return hash((self.name, len(self.parameters)))

    def function(self, library: str, **more: Any) -> Callable[..., Any]:
        """See `PortableModule.function`."""
        file, _, cls = self.name.partition(".")
        module, ops = (importlib.import_module(f"{__package__}.{library}.{name}") for name in (file, "ops"))
        function: Callable[..., Any] = ops.FunctionalModule(
            getattr(module, cls), {**dict(self.options), **more}, self.parameters
        )
        return function


def hashable(options: Mapping[str, Any]) -> Options:
    """Arguments as pairs, with tuples for lists: `torch.compile` hashes every field of a module's declaration."""
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())


def network_spec(
    name: str,
    observation_space: Box,
    actions: ActionSpec,
    streams: int,
    parameters: tuple[Parameter, ...],
    options: dict[str, Any],
    first: tuple[str, ...] = ("trunk.0.weight",),
    **fields: Any,
) -> NetworkSpec:
    """The network of the module `name` for these observations and actions, with `streams` values.

    `first` are the names of the weights that meet the observations; the other arguments are those of `ModuleSpec` and
    of `NetworkSpec`.
    """
    own = hashable({**options, "outputs": actions.action_dim, "streams": streams})
    arrays = list(parameters)
    if not actions.choices:
        position = max(i for i, p in enumerate(arrays) if p.name.startswith("critic.")) + 1
        arrays.insert(position, Parameter("actor.log_std", (actions.action_dim,), None))
    takes_bytes = is_byte_space(observation_space)
    return NetworkSpec(
        ModuleSpec(name, parameters, own),
        tuple(arrays),
        observation_space.shape,
        takes_bytes,
        actions,
        scaled_weights=first if takes_bytes else (),
        **fields,
    )
