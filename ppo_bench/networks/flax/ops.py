"""JAX implementation of the layer operations (`Ops`, ppo_bench/networks/ops.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.layers import Activation, CellName, Conv, Spread
from ppo_bench.networks.ops import EPSILON, ScanStep
from ppo_bench.tuning.jax_convolutions import convolve, max_pool
from ppo_bench.tuning.switches import ON, Tuning


def _leaky_relu(x: jax.Array) -> jax.Array:
    """`torch.nn.LeakyReLU`. The derivative at 0, which black pixels reach, is 0.01; that of `nn.leaky_relu` is 1."""
    return jnp.where(x > 0, x, 0.01 * x)


_ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": nn.relu,
    "leaky_relu": _leaky_relu,
    "elu": nn.elu,
    "gelu": functools.partial(nn.gelu, approximate=False),
    "silu": nn.silu,
}


GAE_STEPS_AT_ONCE = 16
"""Steps of the scan of advantages that a GPU computes in one pass of its loop (docs/performance.md)."""


class JaxOps:
    """`Ops` in JAX, with parameters of dtype `dtype` and layers that compute in the dtype `layers`."""

    xp: Any = jnp

    def __init__(self, dtype: jnp.dtype, layers: jnp.dtype, tuning: Tuning = ON, axis: str | None = None) -> None:
        """`axis` names the mesh axis of the devices that share the training; None for one device."""
        self._dtype, self._layers, self._by_products = dtype, layers, tuning.convolve_by_products
        self._axis = axis

    def total(self, x: jax.Array) -> jax.Array:
        """See `Ops.total`."""
        summed: jax.Array = jax.lax.psum(x, self._axis) if self._axis else x
        return summed

    def across(self, seen: Moments) -> Moments:
        """See `Ops.across`."""
        if self._axis is None:
            return seen
        return pooled(jnp, seen, functools.partial(jax.lax.all_gather, axis_name=self._axis))

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

        unroll = 1 if _on_cpu() else GAE_STEPS_AT_ONCE
        return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, decays), reverse=True, unroll=unroll)[1]

    def for_layers(self, params: Tree) -> Tree:
        """See `Ops.for_layers`."""
        return {name: parameter.astype(self._layers) for name, parameter in params.items()}

    def flat(self, obs: jax.Array) -> jax.Array:
        """See `Ops.flat`."""
        return obs.astype(self._layers)

    def images(self, obs: jax.Array) -> jax.Array:
        """See `Ops.images`; they stay bytes, which the first convolution casts."""
        return obs

    def flattened(self, x: jax.Array) -> jax.Array:
        """See `Ops.flattened`."""
        return x.reshape(x.shape[0], -1).astype(self._layers)

    def linear(self, x: jax.Array, weight: jax.Array, bias: jax.Array, activation: Activation | None) -> jax.Array:
        """See `Ops.linear`."""
        sums = jnp.matmul(x, weight.T, preferred_element_type=self._dtype)
        return self.activate(activation, (sums + bias).astype(self._layers))

    def recur(
        self,
        cell: CellName,
        projected: jax.Array,
        start: jax.Array,
        state: tuple[jax.Array, ...],
        weight: jax.Array,
        bias: jax.Array,
    ) -> jax.Array:
        """See `Ops.recur`; one `lax.scan`."""

        def step(state: tuple[jax.Array, ...], row: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            projected_row, start_row = row
            kept = (1 - start_row)[:, None].astype(self._layers)
            state = tuple(part * kept for part in state)
            state, _ = CELLS[cell].step(jnp, projected_row, self.linear(state[0], weight, bias, None), state)
            return state, state[0]

        return jax.lax.scan(step, state, (projected, start))[1]

    def convolve(self, layer: Conv, x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        """See `Ops.convolve`."""
        if self._by_products and _on_cpu() and layer.kernel % layer.stride == 0:
            sums = convolve(x, weight, layer.stride, layer.padding, self._dtype)
        else:
            sums = _convolve(layer, x, weight, self._dtype)
        return self.activate(layer.activation, (sums + bias).astype(self._layers))

    def spread(self, layer: Spread, x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        """See `Ops.spread`. The kernel is flipped: `lax.conv_transpose` and PyTorch index it in opposite directions."""
        turned, layout = weight[:, ::-1, ::-1], ("NHWC", "OHWI", "NHWC")
        strides = (layer.stride, layer.stride)
        sums = jax.lax.conv_transpose(x, turned, strides, "VALID", dimension_numbers=layout).astype(self._dtype)
        return self.activate(layer.activation, (sums + bias).astype(self._layers))

    def max_pool(self, x: jax.Array) -> jax.Array:
        """See `Ops.max_pool`."""
        return max_pool(x) if self._by_products and _on_cpu() else _max_pool(x)

    def standardised(self, x: jax.Array) -> jax.Array:
        """See `Ops.standardised`."""
        # In `dtype`: JAX takes the variance for a difference of means, which cancels in one of few bits.
        return jax.nn.standardize(x.astype(self._dtype), epsilon=EPSILON).astype(x.dtype)

    def activate(self, activation: Activation | None, x: jax.Array) -> jax.Array:
        """See `Ops.activate`."""
        return _ACTIVATIONS[activation](x) if activation else x

    def relu(self, x: jax.Array) -> jax.Array:
        """See `Ops.relu`."""
        return nn.relu(x)

    def full(self, x: jax.Array) -> jax.Array:
        """See `Ops.full`."""
        return x.astype(self._dtype)


def _convolve(layer: Conv, x: jax.Array, weight: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The convolution of channels-last `x [B, H, W, C]` by `weight [out, k, k, C]`, computed in the dtype of `weight`.

    The result has dtype `dtype`.
    """
    strides, padding = (layer.stride, layer.stride), [(layer.padding, layer.padding)] * 2
    layout, x = ("NHWC", "OHWI", "NHWC"), x.astype(weight.dtype)
    return jax.lax.conv_general_dilated(x, weight, strides, padding, dimension_numbers=layout).astype(dtype)


def _max_pool(x: jax.Array) -> jax.Array:
    """`MaxPool` applied to channels-last `x [B, H, W, C]`."""
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), sides)


def _on_cpu() -> bool:
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # runners set it
    return (device.platform if device else jax.default_backend()) == "cpu"
