"""`Ops` (ppo_bench/networks/ops.py) in JAX, and modules as functions of their parameters."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.normalize import Moments, pool_moments
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.flax.layers import on_cpu
from ppo_bench.networks.ops import PortableModule, ScanStep
from ppo_bench.tuning.switches import ON, Tuning

GAE_UNROLL = 16
"""Steps of the scan of advantages that a GPU computes in one pass of its loop (docs/performance.md)."""


class JaxOps:
    """`Ops` in JAX, with parameters of dtype `dtype` and modules that compute in the dtype `layers`."""

    xp: Any = jnp

    def __init__(self, dtype: jnp.dtype, layers: jnp.dtype, tuning: Tuning = ON, axis: str | None = None) -> None:
        """`axis` names the mesh axis of the devices that share the training; None for one device."""
        self._dtype, self._layers, self._by_products = dtype, layers, tuning.convolve_by_products
        self._axis = axis
        self._functions: dict[PortableModule, Callable[..., Any]] = {}

    def all_reduce_sum(self, x: jax.Array) -> jax.Array:
        """See `Ops.all_reduce_sum`."""
        summed: jax.Array = jax.lax.psum(x, self._axis) if self._axis else x
        return summed

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """See `Ops.all_reduce_moments`."""
        if self._axis is None:
            return batch_moments
        return pool_moments(jnp, batch_moments, functools.partial(jax.lax.all_gather, axis_name=self._axis))

    def take(self, x: jax.Array, rows: jax.Array, axis: int) -> jax.Array:
        """See `Ops.take`."""
        return x[(slice(None),) * axis + (rows,)]

    def take_windows(self, x: jax.Array, rows: jax.Array, steps: int, stride: int) -> jax.Array:
        """See `Ops.take_windows`."""
        return x[rows[:, None] + stride * jnp.arange(steps)]

    def scan(self, step: ScanStep, carry: Any, rows: Any) -> tuple[Any, Any]:
        """See `Ops.scan`; one `lax.scan`."""
        return jax.lax.scan(step, carry, rows)

    def scan_backwards(self, _: Any, deltas: jax.Array, decays: jax.Array) -> jax.Array:
        """See `Ops.scan_backwards`; one `lax.scan`."""

        def step(next_advantage: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            advantage = ppo.gae_step(next_advantage, *row)
            return advantage, advantage

        unroll = 1 if on_cpu() else GAE_UNROLL
        return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, decays), reverse=True, unroll=unroll)[1]

    def to_layer_dtype(self, params: Tree) -> Tree:
        """See `Ops.to_layer_dtype`."""
        return {name: parameter.astype(self._layers) for name, parameter in params.items()}

    def call(self, module: PortableModule, params: Tree, *inputs: Any) -> Any:
        """See `Ops.call`."""
        if module not in self._functions:
            self._functions[module] = module.function("flax", by_products=self._by_products)
        return self._functions[module](params, *inputs)

    def cast_obs(self, obs: jax.Array) -> jax.Array:
        """See `Ops.cast_obs`; bytes and flags stay what they are, which the first layer casts."""
        return obs.astype(self._layers) if jnp.issubdtype(obs.dtype, jnp.floating) else obs

    def to_param_dtype(self, x: jax.Array) -> jax.Array:
        """See `Ops.to_param_dtype`."""
        return x.astype(self._dtype)


class FunctionalModule:
    """A module of the class `cls`, whose layers have the names of `parameters`, as a function `(params, *inputs)`."""

    def __init__(self, cls: type[nn.Module], options: Mapping[str, Any], parameters: Sequence[Parameter]) -> None:
        fields = {field.name for field in dataclasses.fields(cls)}
        self._module = cls(**{name: value for name, value in options.items() if name in fields})
        self._names = [parameter.name for parameter in parameters]

    def __call__(self, params: Mapping[str, jax.Array], *inputs: Any) -> Any:
        """What the module's `__call__` returns, computed with `params`."""
        tree: dict[str, dict[str, jax.Array]] = {}
        for name in self._names:
            layer, _, kind = name.rpartition(".")
            kind, array = to_flax_layout(kind, params[name])
            tree.setdefault(layer, {})[kind] = array
        return self._module.apply({"params": tree}, *inputs)


def to_flax_layout(kind: str, array: jax.Array) -> tuple[str, jax.Array]:
    """The name in Flax of a layer's parameter `kind`, and the parameter in Flax's layout.

    Neutral weights `[outputs, ..., inputs]` are kernels `[..., inputs, outputs]`, or the scale of a normalisation.
    """
    if kind != "weight":
        return kind, array
    return ("scale", array) if array.ndim == 1 else ("kernel", jnp.moveaxis(array, 0, -1))
