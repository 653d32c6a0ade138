"""The modules of a network: a `torch.nn.Module` and a `flax.linen.Module` of the same name, and their parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ppo_bench.mathematics.weights import Parameter

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class ModuleSpec:
    """A module that both frameworks have: `networks/torch/<file>.py` and `networks/flax/<file>.py` have its class."""

    name: str
    """File and class, as in `cnn.NatureCnn`."""
    options: Options
    """Arguments of the constructor."""
    parameters: tuple[Parameter, ...]
    """The parameters: PyTorch's module takes them in this order, Flax's by their names."""
    inputs: Options = ()
    """Arguments that only PyTorch needs, since Flax infers them: the sizes of the inputs."""
    flax: Options = ()
    """Arguments that only Flax needs: a prefix of the layers' names."""
    convolves: bool = False
    """Whether most of the arithmetic is convolutions."""

    def __hash__(self) -> int:
        """A hash that takes no time, since each call of the module looks it up."""
        return hash((self.name, self.parameters[0].name))

    def torch_function(self) -> Callable[..., Any]:
        """The function `(params, *inputs)` of the module of PyTorch."""
        from ppo_bench.networks.torch.ops import FunctionalModule

        cls, options = _import_module_class(f"torch.{self.name}"), {**dict(self.options), **dict(self.inputs)}
        return FunctionalModule(lambda: cls(**options), self.parameters)

    def flax_function(self, by_products: bool) -> Callable[..., Any]:
        """The function `(params, *inputs)` of the module of Flax; `by_products` is an option of its convolutions."""
        from ppo_bench.networks.flax.ops import FunctionalModule

        options = {**dict(self.options), **dict(self.flax)}
        if self.convolves:
            options["by_products"] = by_products
        return FunctionalModule(_import_module_class(f"flax.{self.name}")(**options), self.parameters)


def _import_module_class(name: str) -> Any:
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), cls)


def options(**named: Any) -> Options:
    """Arguments as `Options`, with tuples for lists, so that modules can be compared."""
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in named.items())
