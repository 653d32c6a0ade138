"""Networks that are modules of the user's: `torch.nn.Module`s and `flax.linen.Module`s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Dict

from ppo_bench.common.errors import ConfigError, as_config_error
from ppo_bench.common.flattened import FlattenedArray, FlattenedBox, is_byte_space
from ppo_bench.mathematics.arrays import Array, Arrays, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import CarrySpec, NetworkSpec, action_spec
from ppo_bench.networks.user_modules import FlaxModule, TorchModule

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

    def function(self, library: str, **_: Any) -> Callable[..., Any]:
        """See `PortableModule.function`."""
        return self._torch_function() if library == "torch" else self._flax_function()

    def _torch_function(self) -> Callable[..., Any]:
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

    def _flax_function(self) -> Callable[..., Any]:
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
            if module.flax.carry != module.torch.carry:
                raise ConfigError(
                    f"{module.flax.setting} has the carry {module.flax.carry}, and {module.torch.setting} "
                    f"{module.torch.carry}: give both the same names and shapes"
                )
            module.flax.translate_params(module.torch.initial_params(0), dict(module.names))
        self._require_outputs(getattr(module, library), library)
        if library == "torch" and module.torch:
            self._require_independent_rows(module.torch)

    def _require_outputs(self, module: TorchModule | FlaxModule, library: str) -> None:
        """Raise `ConfigError` if `module` returns something else than docs/own-modules.md says for two observations."""
        outputs = self._try_out(module, library, np.zeros((2, *self.observation_shape), np.float32))
        shapes = [tuple(getattr(output, "shape", ())) for output in outputs] if isinstance(outputs, tuple) else []
        size, carry = self.actions.action_dim, module.carry
        if not self.parameters or not module.shapes:
            raise ConfigError(f"{module.setting} has no parameters to train")
        if carry and len(shapes) == 3:
            is_dict, kind = isinstance(outputs[2], dict), type(outputs[2]).__name__
            after = {name: tuple(np.shape(x)) for name, x in outputs[2].items()} if is_dict else kind
            if after != (before := {name: (2, *shape) for name, shape in carry.items()}):
                raise ConfigError(f"{module.setting} returns the carry {after} for two observations: expected {before}")
        if len(shapes) != 2 + bool(carry) or shapes[0] != (2, size) or shapes[1] not in ((2,), (2, 1)):
            returned = f"arrays of shapes {shapes}" if shapes else type(outputs).__name__
            expected = f"({'logits' if self.discrete else 'mean'} [2, {size}], value [2]{', carry' if carry else ''})"
            raise ConfigError(f"{module.setting} returns {returned} for two observations: expected {expected}")

    def _require_independent_rows(self, module: TorchModule) -> None:
        """Raise `ConfigError` if the outputs for an observation depend on chance, or on the others of its batch."""
        batches = np.random.default_rng(0).random((2, 2, *self.observation_shape), np.float32)
        batches[1, 0] = batches[0, 0]
        found = [self._try_out(module, "torch", obs)[:2] for obs in batches]
        if not all(
            np.allclose(one[0], other[0], 1e-4, 1e-5, equal_nan=True) for one, other in zip(*found, strict=True)
        ):
            raise ConfigError(
                f"{module.setting} returns other outputs for the same observation in another batch: leave out dropout, "
                "and normalisation over the batch"
            )

    def _try_out(self, module: TorchModule | FlaxModule, library: str, obs: np.ndarray) -> Any:
        """What `module` returns for `obs [2, ...]` and a carry of zeros. Raises `ConfigError` for what it raises."""
        carry = {name: np.zeros((2, *shape), np.float32) for name, shape in module.carry.items()}
        carry_inputs = (carry, np.ones(2, np.float32)) if carry else ()
        with as_config_error(module.setting):
            return module.try_out(self.module.function(library), self.initial_params(0), obs, *carry_inputs)

    def initial_params(self, seed: int) -> Arrays:
        """See `NetworkSpec.initial_params`: the values that the module's constructor gives its parameters."""
        return self.module.first.initial_params(seed)

    def to_input_layout(self, observations: Array, xp: Any = np) -> Array:
        """`observations [N, ...]` in their own layout."""
        return observations
