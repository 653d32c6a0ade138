"""The three array namespaces, each behind a call that takes lists or NumPy arrays and returns NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import torch


class Namespace(NamedTuple):
    """`xp` is `numpy`, `torch` or `jax.numpy`."""

    name: str
    xp: Any

    def array(self, values: Any) -> Any:
        """An array of this namespace: lists become float64, NumPy arrays keep their dtype."""
        return self.xp.asarray(np.array(values, np.float64 if isinstance(values, list) else None))

    def dtype(self, name: str) -> Any:
        """The namespace's own object for a dtype such as "float32"."""
        return getattr(self.xp, name)

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """`function(xp, *args, **options)` with lists and NumPy arrays among `args` converted, also inside tuples."""
        arrays = (_map(lambda x: self.array(x) if isinstance(x, list | np.ndarray) else x, arg) for arg in args)
        return to_numpy(function(self.xp, *arrays, **options))


NAMESPACES = {
    "numpy": Namespace("numpy", np),
    "torch": Namespace("torch", torch),
    "jax": Namespace("jax", jnp),
}


def to_numpy(x: Any) -> Any:
    """`x` with every array, also inside tuples, as a NumPy array."""
    return _map(lambda leaf: np.asarray(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf), x)


def _map(function: Callable[[Any], Any], x: Any) -> Any:
    if not isinstance(x, tuple):
        return function(x)
    items = [_map(function, item) for item in x]
    return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
