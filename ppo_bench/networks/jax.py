"""The operations of JAX; see ppo_bench/networks/ops.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.networks.layers import Activation, Conv
from ppo_bench.networks.ops import Step

SLICES_BYTES = 4 * 2**20
"""At most, of the images that a convolution on a CPU takes at a time; less would part the 8 frames of an Atari step."""

_ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class JaxOps:
    """`Ops`, with parameters of type `dtype` and layers that compute in the type `layers`."""

    xp: Any = jnp

    def __init__(self, dtype: jnp.dtype, layers: jnp.dtype) -> None:
        self._dtype, self._layers = dtype, layers

    def take(self, x: jax.Array, rows: jax.Array, axis: int) -> jax.Array:
        """See `Ops.take`."""
        return x[(slice(None),) * axis + (rows,)]

    def scan(self, step: Step, carry: Any, rows: Any) -> tuple[Any, Any]:
        """See `Ops.scan`; one loop of the program."""
        return jax.lax.scan(step, carry, rows)

    def scan_backwards(self, _: Any, deltas: jax.Array, decays: jax.Array) -> jax.Array:
        """See `Ops.scan_backwards`; one loop of the program."""

        def step(next_advantage: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            advantage = ppo.gae_step(next_advantage, *row)
            return advantage, advantage

        return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, decays), reverse=True)[1]

    def for_layers(self, params: Tree) -> Tree:
        """See `Ops.for_layers`."""
        return {name: parameter.astype(self._layers) for name, parameter in params.items()}

    def flat(self, obs: jax.Array) -> jax.Array:
        """See `Ops.flat`."""
        return obs.astype(self._layers)

    def images(self, obs: jax.Array) -> jax.Array:
        """See `Ops.images`; they stay bytes until the first convolution has parted them."""
        return obs

    def flattened(self, x: jax.Array) -> jax.Array:
        """See `Ops.flattened`."""
        return x.reshape(x.shape[0], -1).astype(self._layers)

    def linear(self, x: jax.Array, weight: jax.Array, bias: jax.Array, activation: Activation | None) -> jax.Array:
        """See `Ops.linear`."""
        sums = jnp.matmul(x, weight.T, preferred_element_type=self._dtype)
        return self.activate(activation, (sums + bias).astype(self._layers))

    def convolve(self, layer: Conv, x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        """See `Ops.convolve`."""
        return self.activate(layer.activation, (convolve(layer, x, weight, self._dtype) + bias).astype(self._layers))

    def max_pool(self, x: jax.Array) -> jax.Array:
        """See `Ops.max_pool`."""
        return max_pool(x)

    def activate(self, activation: Activation | None, x: jax.Array) -> jax.Array:
        """See `Ops.activate`."""
        return _ACTIVATIONS[activation](x) if activation else x

    def relu(self, x: jax.Array) -> jax.Array:
        """See `Ops.relu`."""
        return nn.relu(x)

    def full(self, x: jax.Array) -> jax.Array:
        """See `Ops.full`."""
        return x.astype(self._dtype)


def convolve(layer: Conv, x: jax.Array, weight: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """A convolution of channels-last `x [B, H, W, C]` by `weight [out, k, k, C]`, in its type; sums of type `dtype`.

    XLA convolves with cuDNN on a GPU. On a CPU its gradients fall into a slow path, 10 times slower and worse in a
    loop, so there the same sum is written as matrix products: of a few images at a time where there are many, so that
    slices stay in the cache and the gradient makes them anew instead of keeping them all (docs/performance.md).
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # which runners set
    if (device.platform if device else jax.default_backend()) != "cpu":
        strides, padding = (layer.stride, layer.stride), [(layer.padding, layer.padding)] * 2
        layout, x = ("NHWC", "OHWI", "NHWC"), x.astype(weight.dtype)
        return jax.lax.conv_general_dilated(x, weight, strides, padding, dimension_numbers=layout).astype(dtype)
    # Gradients of parts are added up in the type of sums, not in that of the layers.
    batch, wide, kind = x.shape[0], weight.astype(dtype), weight.dtype

    def one(part: jax.Array) -> jax.Array:
        return _convolve_by_products(layer, part, wide.astype(kind), dtype)

    slices = math.prod(layer.output_size(size) for size in x.shape[1:3]) * weight[0].nbytes
    together = max(n for n in range(1, batch + 1) if batch % n == 0 and (n == 1 or n * slices <= SLICES_BYTES))
    if together == batch:
        return one(x)
    sums = jax.lax.map(jax.checkpoint(one), x.reshape(batch // together, together, *x.shape[1:]))
    return sums.reshape(batch, *sums.shape[2:])


def max_pool(x: jax.Array) -> jax.Array:
    """`MaxPool` of channels-last `x [B, H, W, C]`: columns, then rows, where the first of equal pixels stays.

    The gradient of `lax.reduce_window` takes 5 times as long on a CPU (docs/performance.md).
    """
    for axis in (2, 1):
        padding = [(1, 1) if i == axis else (0, 0) for i in range(4)]
        padded = jnp.pad(x, padding, constant_values=-jnp.inf)
        last = 2 * ((x.shape[axis] + 1) // 2) - 1
        x, *others = (jax.lax.slice_in_dim(padded, i, i + last, 2, axis) for i in range(3))
        for other in others:
            x = jnp.where(other > x, other, x)
    return x


def _convolve_by_products(layer: Conv, x: jax.Array, weight: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`convolve`: blocks of stride x stride pixels become channels; then one product for each row of the kernel."""
    outputs, kernel, stride, sides = layer.outputs, layer.kernel, layer.stride, (layer.padding, layer.padding)
    if kernel % stride:
        raise ValueError(f"a kernel of {kernel} is no multiple of its stride {stride}")
    x = jnp.pad(x.astype(weight.dtype), ((0, 0), sides, sides, (0, 0)))
    batch, height, width, channels = x.shape
    rows, columns, taps = height // stride, width // stride, kernel // stride
    x = x[:, : rows * stride, : columns * stride].reshape(batch, rows, stride, columns, stride, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, -1)
    blocks = weight.reshape(outputs, taps, stride, taps, stride, channels).transpose(1, 0, 3, 2, 4, 5)
    matrices = blocks.reshape(taps, outputs, -1)
    rows, columns = rows - taps + 1, columns - taps + 1
    x = jnp.concatenate([x[:, :, j : j + columns] for j in range(taps)], -1)
    products = [
        _product(x[:, i : i + rows].reshape(batch * rows * columns, -1), matrices[i], dtype) for i in range(taps)
    ]
    return sum(products[1:], products[0]).reshape(batch, rows, columns, outputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: jax.Array, matrix: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`x [B, K]` times `matrix [N, K]`, transposed; sums of type `dtype`.

    XLA makes a gradient `[N, K]` of few rows twice as fast as one `[K, N]`, and forward the product by `[K, N]`.
    """
    turned = jax.lax.optimization_barrier(matrix.T)  # else XLA folds the transposition into the product
    return jnp.matmul(x, turned, preferred_element_type=dtype)


def _product_forward(
    x: jax.Array, matrix: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x, matrix, dtype), (x, matrix)


def _product_backward(
    dtype: jnp.dtype, saved: tuple[jax.Array, jax.Array], sums: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, matrix = saved
    return jnp.matmul(sums, matrix).astype(x.dtype), jnp.matmul(sums.T, x).astype(matrix.dtype)


_product.defvjp(_product_forward, _product_backward)
