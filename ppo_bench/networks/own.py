"""Networks that are modules of the user's: `torch.nn.Module`s and `flax.linen.Module`s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ppo_bench.common.classes import class_named
from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.common.flattened import Flattened, Placed
from ppo_bench.mathematics.arrays import Array, Arrays, Tree
from ppo_bench.mathematics.normalize import are_bytes
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import Carry, NetworkSpec, Outputs
from ppo_bench.networks.ops import Ops
from ppo_bench.networks.spec import actions_of

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Own:
    """`network=own`; conf/network/own.yaml explains its options."""

    torch: str | None
    flax: str | None
    names: dict[str, str]

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> OwnSpec:
        """The network for these spaces. Raises `ConfigError` if neither module is named, or one cannot be made."""
        if not (self.torch or self.flax):
            raise ConfigError("network=own: name a module by network.torch=my.module.Net, network.flax=..., or both")
        arrays = _arrays(observation_space)
        spaces = _spaces(arrays) if arrays else observation_space, action_space
        of_torch = TorchModule(self.torch, spaces) if self.torch else None
        of_flax = FlaxModule(self.flax, spaces) if self.flax else None
        return OwnSpec(
            convolutions=(),
            trunk=(),
            actor=(),
            critic=(),
            observation_shape=observation_space.shape,
            uint8=are_bytes(observation_space),
            actions=actions_of(action_space),
            torch=self.torch,
            flax=self.flax,
            names=tuple(self.names.items()),
            arrays=arrays,
            spaces=repr(spaces),
            of_torch=of_torch,
            of_flax=of_flax,
        )


@dataclass(frozen=True)
class OwnSpec(NetworkSpec):
    """A network whose forward pass is a module's, called with parameters from outside.

    Its parameters have the names and layouts of the PyTorch module, or of the Flax module if there is no other, and
    the initial values that this module gives them under the seed.
    """

    torch: str | None
    flax: str | None
    names: tuple[tuple[str, str], ...]
    """Names of the PyTorch module's parameters, by those of the Flax module's."""
    arrays: tuple[tuple[str, Placed], ...]
    """Places of the arrays that the environment's observations are dictionaries of; none if they are one array."""
    spaces: str
    """The spaces that the modules are constructed with, which tell networks of the same modules apart."""
    of_torch: TorchModule | None = field(compare=False)
    of_flax: FlaxModule | None = field(compare=False)

    @property
    def _first(self) -> TorchModule | FlaxModule:
        """The module whose parameters are the network's."""
        module = self.of_torch or self.of_flax
        assert module is not None
        return module

    def require(self, library: str) -> None:
        """See `NetworkSpec.require`: there has to be a module, and `names` for the parameters of a second one."""
        if getattr(self, f"of_{library}") is None:
            raise ConfigError(f"network.{library}=null: this framework needs a module of your own of {library}")
        if library == "flax" and self.of_flax and self.of_torch:
            self.of_flax.translated(self.of_torch.initial(0), dict(self.names))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """See `NetworkSpec.parameters`."""
        arrays = tuple(Parameter(name, shape, None) for name, shape in self._first.shapes.items())
        return arrays if self.discrete else (*arrays, Parameter("actor.log_std", (self.actions.lanes,), None))

    def initial(self, seed: int) -> Arrays:
        """See `NetworkSpec.initial`: the values that the module's constructor gives its parameters."""
        return self._first.initial(seed)

    @property
    def carry(self) -> tuple[Carry, ...]:
        """See `NetworkSpec.carry`: the arrays of the module's `initial_carry`."""
        return tuple(Carry(name, shape) for name, shape in self._first.carry.items())

    @property
    def sequences(self) -> bool:
        """See `NetworkSpec.sequences`."""
        return bool(self._first.carry)

    @property
    def scaled_weights(self) -> tuple[str, ...]:
        """No names: the module divides bytes itself."""
        return ()

    def arrange(self, observations: Array) -> Array:
        """`observations [N, ...]` in their own layout."""
        return observations

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """See `NetworkSpec.forward`."""
        memory = (ops.for_layers(carry), ops.for_layers({"start": start})["start"]) if self.carry else ()
        seen = ops.flat(obs)
        parts = {name: seen[:, p.start : p.stop].reshape((-1, *p.shape)) for name, p in self.arrays}
        output, values, *after = self._call(ops, ops.for_layers(params), parts or seen, *memory)
        values = ops.full(values.squeeze(-1) if values.ndim == 2 else values)
        return Outputs(
            self.head(params, ops.full(output)), values, {k: ops.full(x) for k, x in after[0].items()} if after else {}
        )

    def _call(self, ops: Ops, params: Tree, *inputs: Any) -> Any:
        if ops.xp.__name__ == "torch":
            assert self.of_torch is not None  # see `require`
            return self.of_torch(params, *inputs)
        assert self.of_flax is not None
        own = self.of_flax.translated(params, dict(self.names)) if self.of_torch else params
        return self.of_flax(own, *inputs)

    def with_streams(self, streams: int) -> NoReturn:
        """Raise `ConfigError`: a module of the user's has one value for each observation."""
        raise ConfigError(f"network=own: the algorithm learns {streams} values of an observation; use algorithm=ppo")


class TorchModule:
    """A `torch.nn.Module` as a function of its parameters."""

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class. Raises `ConfigError` if a checkpoint would lack a part of the module's state."""
        from torch import nn

        self._target, self._cls, self._spaces = target, class_named("network.torch", target, nn.Module), spaces
        self._module = self._made(0)
        self.shapes = {name: tuple(each.shape) for name, each in self._module.named_parameters()}
        self.carry = {name: tuple(x.shape) for name, x in _initial_carry(self._module).items()}
        apart = [name for name, _ in self._module.named_buffers()]
        apart += [name for name, each in self._module.named_parameters() if not each.requires_grad]
        apart += [name for name, each in self._module.named_modules() if "Dropout" in type(each).__name__]
        if apart:
            raise ConfigError(
                f"network.torch={target}: {apart[0]} is a buffer, a parameter without gradient, or dropout, which a "
                "run does not keep; compute constants in forward"
            )

    def _made(self, seed: int) -> Any:
        import torch

        with torch.random.fork_rng(devices=[]), _made_by(f"network.torch={self._target}"):
            torch.manual_seed(seed)
            return self._cls(*self._spaces)

    def initial(self, seed: int) -> Arrays:
        """Initial parameters by name."""
        return {name: each.detach().float().numpy() for name, each in self._made(seed).named_parameters()}

    def __call__(self, params: Tree, *inputs: Any) -> Any:
        """What the module's `forward` returns, computed with `params`."""
        import torch

        own = {name: params[name] for name in self.shapes}
        return torch.func.functional_call(self._module, own, inputs)


class FlaxModule:
    """A `flax.linen.Module` as a function of its parameters."""

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class."""
        from flax import linen

        cls, self._target, self._space = class_named("network.flax", target, linen.Module), target, spaces[0]
        with _made_by(f"network.flax={target}"):
            self._module = cls(*spaces)
        self.carry = {name: tuple(x.shape) for name, x in _initial_carry(self._module).items()}
        self._shapes: dict[str, tuple[int, ...]] | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name, as in `Dense_0.kernel`."""
        import jax

        if self._shapes is None:
            tree = jax.eval_shape(lambda: self._drawn(0))
            self._shapes = {name: tuple(x.shape) for name, x in _flat(tree).items()}
        return self._shapes

    def _drawn(self, seed: int) -> Any:
        import jax
        import jax.numpy as jnp

        carry = {name: jnp.zeros((1, *shape)) for name, shape in self.carry.items()}
        memory = (carry, jnp.zeros(1)) if carry else ()
        parts = {name: jnp.zeros((1, *part.shape)) for name, part in getattr(self._space, "spaces", {}).items()}
        seen = parts or jnp.zeros((1, *self._space.shape))
        with _made_by(f"network.flax={self._target}"):
            variables = self._module.init(jax.random.key(seed), seen, *memory)
        if apart := set(variables) - {"params"}:
            raise ConfigError(f"network.flax={self._target}: {apart.pop()} are variables that a run does not keep")
        return variables["params"]

    def initial(self, seed: int) -> Arrays:
        """Initial parameters by name."""
        return {name: np.asarray(x) for name, x in _flat(self._drawn(seed)).items()}

    def translated(self, params: Tree, names: Mapping[str, str]) -> Tree:
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


def _arrays(space: Any) -> tuple[tuple[str, Placed], ...]:
    """Names and places of the arrays in flattened observations."""
    named = isinstance(space, Flattened) and space.names != ("",)  # a choice, whose vector is one-hot, has no name
    return tuple(zip(space.names, space.arrays, strict=True)) if named else ()


def _spaces(arrays: Iterable[tuple[str, Placed]]) -> Any:
    """The space of dictionaries of these arrays."""
    from gymnasium import spaces

    return spaces.Dict({name: spaces.Box(-np.inf, np.inf, place.shape, np.float32) for name, place in arrays})


def _flat(tree: Any) -> dict[str, Any]:
    from flax.traverse_util import flatten_dict

    flat: dict[str, Any] = flatten_dict(tree, sep=".")
    return flat


@contextmanager
def _made_by(what: str) -> Iterator[None]:
    """A context in which what a module of the user's raises becomes a `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # a user's module can raise anything
        raise ConfigError(
            f"{what} cannot be made for these spaces: {type(error).__name__}: {one_line(error)}"
        ) from error


def _initial_carry(module: Any) -> dict[str, Any]:
    """Arrays of zeros that a module with a memory starts from, of one environment; none without `initial_carry`."""
    return dict(module.initial_carry()) if hasattr(module, "initial_carry") else {}
