"""A user's module, a `torch.nn.Module` or a `flax.linen.Module`, as a function of its parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.classes import import_class
from ppo_bench.common.errors import ConfigError, as_config_error, require
from ppo_bench.mathematics.arrays import Arrays, Tree


class UserModule:
    """A module of a user's. Two of the same class for the same spaces are equal."""

    namespace: ClassVar[str]
    """Python's module that has the class `Module` of the library."""

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class."""
        library = self.namespace.partition(".")[0]
        self.setting, self._spaces = f"network.{library}={target}", spaces
        require(library, "torch" if library == "torch" else "jax", self.setting)
        self._cls = import_class(f"network.{library}", target, importlib.import_module(self.namespace).Module)
        self._module = self._construct()
        with as_config_error(self.setting):
            zeros = self._module.initial_carry() if hasattr(self._module, "initial_carry") else {}
            if not isinstance(zeros, Mapping) or any(np.asarray(x).any() for x in zeros.values()):
                raise ConfigError(f"{self.setting}: initial_carry returns arrays of zeros by name, as {{'h': zeros}}")
        self.carry: dict[str, tuple[int, ...]] = {name: tuple(np.shape(x)) for name, x in zeros.items()}
        """Shapes of the arrays of the carry of one environment, by name."""

    def __eq__(self, other: object) -> bool:
        """Whether `other` is of the same class, for the same spaces."""
        return isinstance(other, UserModule) and (self.setting, self._spaces) == (other.setting, other._spaces)

    def __hash__(self) -> int:
        """A hash that takes no time."""
        return hash(self.setting)

    def _construct(self) -> Any:
        with as_config_error(self.setting):
            return self._cls(*self._spaces)


class TorchModule(UserModule):
    """A `torch.nn.Module` as a function of its parameters."""

    namespace = "torch.nn"

    def __init__(self, target: str, spaces: tuple[Any, Any]) -> None:
        """`target` names the class. Raises `ConfigError` if a checkpoint would lack a part of the module's state."""
        super().__init__(target, spaces)
        import torch
        from torch.nn.parameter import is_lazy

        if any(map(is_lazy, self._module.parameters())):
            raise ConfigError(f"{self.setting}: lazy layers have no shapes yet: give their sizes in __init__")
        self.shapes = {name: tuple(each.shape) for name, each in self._module.named_parameters()}
        apart = [name for name, _ in self._module.named_buffers()]
        apart += [name for name, each in self._module.named_parameters() if not each.requires_grad]
        for name, each in self._module.named_modules():
            apart += [f"{name}.{key}".lstrip(".") for key, value in vars(each).items() if torch.is_tensor(value)]
        if apart:
            raise ConfigError(
                f"{self.setting}: {apart[0]} is a buffer, another tensor, or a parameter without gradient, which a "
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

    def try_out(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """What `function` of tensors returns for arrays and dictionaries of arrays."""
        import torch

        def tensors(value: Any) -> Any:
            is_tree = isinstance(value, dict)
            return {name: torch.tensor(x) for name, x in value.items()} if is_tree else torch.tensor(value)

        with torch.no_grad():
            return function(*map(tensors, inputs))


class FlaxModule(UserModule):
    """A `flax.linen.Module` as a function of its parameters."""

    namespace = "flax.linen"

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name, as in `Dense_0.kernel`."""
        return {".".join(path): shape for path, shape in self._shapes_by_path.items()}

    @cached_property
    def _shapes_by_path(self) -> dict[tuple[str, ...], tuple[int, ...]]:
        """Shapes of the parameters by the names of their layers, which may have dots."""
        import jax

        return {path: tuple(x.shape) for path, x in jax.eval_shape(lambda: self._draw_params(0)).items()}

    def _draw_params(self, seed: int) -> dict[tuple[str, ...], Any]:
        import jax
        import jax.numpy as jnp
        from flax.traverse_util import flatten_dict

        carry = {name: jnp.zeros((1, *shape)) for name, shape in self.carry.items()}
        carry_inputs = (carry, jnp.zeros(1)) if carry else ()
        space = self._spaces[0]
        parts = {name: jnp.zeros((1, *part.shape)) for name, part in getattr(space, "spaces", {}).items()}
        observation = parts or jnp.zeros((1, *space.shape))
        with as_config_error(self.setting):
            variables = self._module.init(jax.random.key(seed), observation, *carry_inputs)
        if apart := set(variables) - {"params"}:
            raise ConfigError(f"{self.setting}: {apart.pop()} are variables that a run does not keep")
        params: dict[tuple[str, ...], Any] = flatten_dict(variables["params"])
        return params

    def initial_params(self, seed: int) -> Arrays:
        """Initial parameters by name."""
        return {".".join(path): np.asarray(x) for path, x in self._draw_params(seed).items()}

    def translate_params(self, params: Tree, names: Mapping[str, str]) -> Tree:
        """The parameters of a PyTorch module as this module's; `names` are theirs by its own.

        Kernels `[in, out]` and `[height, width, in, out]` are PyTorch's weights `[out, in]` and `[out, in, height,
        width]`. Raises `ConfigError` for a name without a parameter, or with one of another shape.
        """
        if unknown := set(names) - set(self.shapes):
            raise ConfigError(f"network.names: {min(unknown)} is not the name of a parameter of network.flax")
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

        own = {path: params[".".join(path)] for path in self._shapes_by_path}
        return self._module.apply({"params": unflatten_dict(own)}, *inputs)

    def try_out(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """The shapes of what `function` returns for arrays and dictionaries of arrays."""
        import jax

        return jax.eval_shape(function, *inputs)
