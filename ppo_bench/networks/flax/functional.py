"""Modules of Flax as functions of their parameters, which lie in the neutral layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics.weights import Parameter


class FunctionalModule:
    """`module`, whose layers have the names of `parameters`, as a function `(params, *inputs)`."""

    def __init__(self, module: nn.Module, parameters: Sequence[Parameter]) -> None:
        self._module, self._names = module, [parameter.name for parameter in parameters]

    def __call__(self, params: Mapping[str, jax.Array], *inputs: Any, **options: Any) -> Any:
        """What the module's `__call__` returns, computed with `params`."""
        tree: dict[str, dict[str, jax.Array]] = {}
        for name in self._names:
            layer, _, kind = name.rpartition(".")
            kind, array = to_flax_layout(kind, params[name])
            tree.setdefault(layer, {})[kind] = array
        return self._module.apply({"params": tree}, *inputs, **options)


def to_flax_layout(kind: str, array: jax.Array) -> tuple[str, jax.Array]:
    """The name in Flax of a layer's parameter `kind`, and the parameter in Flax's layout.

    Neutral weights `[outputs, ..., inputs]` are kernels `[..., inputs, outputs]`, or the scale of a normalisation.
    """
    if kind != "weight":
        return kind, array
    return ("scale", array) if array.ndim == 1 else ("kernel", jnp.moveaxis(array, 0, -1))
