"""Networks that are modules of the user's: `torch.nn.Module`s and `flax.linen.Module`s."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict

from ppo_bench.common.classes import import_class
from ppo_bench.common.errors import ConfigError, as_config_error
from ppo_bench.common.flattened import FlattenedArray, FlattenedBox, is_byte_space
from ppo_bench.mathematics.arrays import Array, Arrays, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import CarrySpec, NetworkSpec, action_spec

if TYPE_CHECKING:
    from gymnasium.spaces import Space


@dataclass(frozen=True)
class Own:
    """`network=own`; conf/network/own.yaml explains its options."""

    torch: str | None
    flax: str | None
    names: dict[str, str]

    def build(self, observation_space: Box, action_space: Space, streams: int = 1) -> OwnSpec:
        """The network for these spaces. Raises `ConfigError` if neither module is named, or one cannot be made."""
        if not (self.torch or self.flax):
            raise ConfigError("network=own: name a module by network.torch=my.module.Net, network.flax=..., or both")
        if streams > 1:
            raise ConfigError(
                f"network=own: the algorithm learns {streams} values of an observation; use algorithm=ppo"
            )
        arrays: tuple[tuple[str, FlattenedArray], ...] = ()
        if isinstance(observation_space, FlattenedBox) and observation_space.names != ("",):
            # The name is empty for a choice, whose vector is one-hot.
            arrays = tuple(zip(observation_space.names, observation_space.arrays, strict=True))
        named: Any = {name: Box(-np.inf, np.inf, array.shape, np.float32) for name, array in arrays}
        spaces = (Dict(named) if named else observation_space), action_space
        module = OwnModule(
            TorchModule(self.torch, spaces) if self.torch else None,
            FlaxModule(self.flax, spaces) if self.flax else None,
            tuple(self.names.items()),
            arrays,
        )
        actions, first = action_spec(action_space), module.first
        parameters = tuple(Parameter(name, shape, None) for name, shape in first.shapes.items())
        if not actions.choices:
            parameters = (*parameters, Parameter("actor.log_std", (actions.action_dim,), None))
        return OwnSpec(
            module,
            parameters,
            observation_space.shape,
            is_byte_space(observation_space),
            actions,
            carry=tuple(CarrySpec(name, shape) for name, shape in first.carry.items()),
            learns_from_sequences=bool(first.carry),
        )


@dataclass(frozen=True)
class OwnModule:
    """The modules of a user's, in place of a `ModuleSpec`.

    The parameters have the names and layouts of the PyTorch module, or of the Flax module if there is no other.
    """

    torch: TorchModule | None
    flax: FlaxModule | None
    names: tuple[tuple[str, str], ...]
    """Names of the PyTorch module's parameters, by those of the Flax module's."""
    arrays: tuple[tuple[str, FlattenedArray], ...]
    """Places of the arrays that the environment's observations are dictionaries of; none if they are one array."""

    @property
    def first(self) -> TorchModule | FlaxModule:
        """The module whose parameters are the network's."""
        module = self.torch or self.flax
        assert module is not None
        return module

    def torch_function(self) -> Callable[..., Any]:
        """See `PortableModule.torch_function`."""
        module = self.torch
        assert module is not None  # see `OwnSpec.require`

        def called(params: Tree, obs: Array, *carry_inputs: Any) -> Any:
            import torch

            if not carry_inputs:
                return module(params, self._parts(obs))
            dtype = params[next(iter(module.shapes))].dtype
            carry = {name: x.to(dtype) for name, x in carry_inputs[0].items()}
            episode_start = carry_inputs[1].to(dtype)
            if episode_start.ndim == 1:
                return module(params, self._parts(obs), carry, episode_start)
            outputs = []
            for t in range(len(obs)):
                *output, carry = module(params, self._parts(obs[t]), carry, episode_start[t])
                outputs.append(output)
            return *(torch.stack(each) for each in zip(*outputs, strict=True)), carry

        return called

    def flax_function(self, by_products: bool) -> Callable[..., Any]:
        """See `PortableModule.flax_function`."""
        module = self.flax
        assert module is not None

        def called(params: Tree, obs: Array, *carry_inputs: Any) -> Any:
            import jax

            own = module.translate_params(params, dict(self.names)) if self.torch else params
            dtype = own[next(iter(module.shapes))].dtype
            obs, *carry_inputs = jax.tree.map(lambda x: x.astype(dtype), (obs, *carry_inputs))
            if not carry_inputs or carry_inputs[1].ndim == 1:
                return module(own, self._parts(obs), *carry_inputs)

            def step(carry: Any, row: tuple[Array, Array]) -> tuple[Any, list[Array]]:
                *outputs, carry = module(own, self._parts(row[0]), carry, row[1])
                return {name: x.astype(dtype) for name, x in carry.items()}, outputs

            carry, outputs = jax.lax.scan(step, carry_inputs[0], (obs, carry_inputs[1]))
            return *outputs, carry

        return called

    def _parts(self, obs: Array) -> Any:
        """The arrays in flattened observations `[B, D]` by name, or other observations as they are."""
        parts = {name: obs[:, part.start : part.stop].reshape((-1, *part.shape)) for name, part in self.arrays}
        return parts or obs


@dataclass(frozen=True)
class OwnSpec(NetworkSpec):
    """A network of a user's modules. Its parameters have the initial values that the module gives them."""

    module: OwnModule

    def require(self, library: str) -> None:
        """See `NetworkSpec.require`: there has to be a module, and `names` for the parameters of a second one."""
        module = self.module
        if getattr(module, library) is None:
            raise ConfigError(f"network.{library}=null: this framework needs a module of your own of {library}")
        if library == "flax" and module.flax and module.torch:
            module.flax.translate_params(module.torch.initial_params(0), dict(module.names))

    def initial_params(self, seed: int) -> Arrays:
        """See `NetworkSpec.initial_params`: the values that the module's constructor gives its parameters."""
        return self.module.first.initial_params(seed)

    def to_input_layout(self, observations: Array, xp: Any = np) -> Array:
        """`observations [N, ...]` in their own layout."""
        return observations


class UserModule:
    """A module of a user's. Two of the same class for the same spaces are equal."""

    namespace: ClassVar[str]
    """Python's module that has the class `Module` of the library."""

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class."""
        key, base = f"network.{self.namespace.partition('.')[0]}", importlib.import_module(self.namespace).Module
        self._setting, self._spaces, self._cls = f"{key}={target}", spaces, import_class(key, target, base)
        self._module = self._construct()
        zeros = self._module.initial_carry() if hasattr(self._module, "initial_carry") else {}
        self.carry: dict[str, tuple[int, ...]] = {name: tuple(x.shape) for name, x in zeros.items()}
        """Shapes of the arrays of the carry of one environment, by name."""

    def __eq__(self, other: object) -> bool:
        """Whether `other` is of the same class, for the same spaces."""
        return isinstance(other, UserModule) and (self._setting, self._spaces) == (other._setting, other._spaces)

    def __hash__(self) -> int:
        """A hash that takes no time."""
        return hash(self._setting)

    def _construct(self) -> Any:
        with as_config_error(self._setting):
            return self._cls(*self._spaces)


class TorchModule(UserModule):
    """A `torch.nn.Module` as a function of its parameters."""

    namespace = "torch.nn"

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class. Raises `ConfigError` if a checkpoint would lack a part of the module's state."""
        super().__init__(target, spaces)
        self.shapes = {name: tuple(each.shape) for name, each in self._module.named_parameters()}
        apart = [name for name, _ in self._module.named_buffers()]
        apart += [name for name, each in self._module.named_parameters() if not each.requires_grad]
        apart += [name for name, each in self._module.named_modules() if "Dropout" in type(each).__name__]
        if apart:
            raise ConfigError(
                f"{self._setting}: {apart[0]} is a buffer, a parameter without gradient, or dropout, which a "
                "run does not keep; compute constants in forward"
            )

    def _construct(self, seed: int = 0) -> Any:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return super()._construct()

    def initial_params(self, seed: int) -> Arrays:
        """Initial parameters by name."""
        return {name: each.detach().float().numpy() for name, each in self._construct(seed).named_parameters()}

    def __call__(self, params: Tree, *inputs: Any) -> Any:
        """What the module's `forward` returns, computed with `params`."""
        import torch

        own = {name: params[name] for name in self.shapes}
        return torch.func.functional_call(self._module, own, inputs)


class FlaxModule(UserModule):
    """A `flax.linen.Module` as a function of its parameters."""

    namespace = "flax.linen"

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name, as in `Dense_0.kernel`."""
        import jax

        return {name: tuple(x.shape) for name, x in jax.eval_shape(lambda: self._draw_params(0)).items()}

    def _draw_params(self, seed: int) -> dict[str, Any]:
        import jax
        import jax.numpy as jnp
        from flax.traverse_util import flatten_dict

        carry = {name: jnp.zeros((1, *shape)) for name, shape in self.carry.items()}
        carry_inputs = (carry, jnp.zeros(1)) if carry else ()
        space = self._spaces[0]
        parts = {name: jnp.zeros((1, *part.shape)) for name, part in getattr(space, "spaces", {}).items()}
        observation = parts or jnp.zeros((1, *space.shape))
        with as_config_error(self._setting):
            variables = self._module.init(jax.random.key(seed), observation, *carry_inputs)
        if apart := set(variables) - {"params"}:
            raise ConfigError(f"{self._setting}: {apart.pop()} are variables that a run does not keep")
        params: dict[str, Any] = flatten_dict(variables["params"], sep=".")
        return params

    def initial_params(self, seed: int) -> Arrays:
        """Initial parameters by name."""
        return {name: np.asarray(x) for name, x in self._draw_params(seed).items()}

    def translate_params(self, params: Tree, names: Mapping[str, str]) -> Tree:
        """The parameters of a PyTorch module as this module's; `names` are theirs by its own.

        Kernels `[in, out]` and `[height, width, in, out]` are PyTorch's weights `[out, in]` and `[out, in, height,
        width]`. Raises `ConfigError` for a name without a parameter, or with one of another shape.
        """
        found: dict[str, Any] = {}
        for name, shape in self.shapes.items():
            theirs = params.get(names.get(name, ""))
            if theirs is None:
                raise ConfigError(
                    f"network.names: {name} of network.flax is not the name of a parameter of network.torch"
                )
            if name.endswith("kernel") and theirs.ndim > 1:
                theirs = theirs.transpose((*range(2, theirs.ndim), 1, 0))
            if theirs.shape != shape:
                raise ConfigError(f"network.names: {name} has shape {shape}, and {names[name]} {theirs.shape}")
            found[name] = theirs
        return found

    def __call__(self, params: Tree, *inputs: Any) -> Any:
        """What the module's `__call__` returns, computed with `params`."""
        from flax.traverse_util import unflatten_dict

        own = {tuple(name.split(".")): params[name] for name in self.shapes}
        return self._module.apply({"params": unflatten_dict(own)}, *inputs)
