"""Convolutions and pooling of JAX on a CPU: 27 times as fast on Breakout as XLA's own (docs/performance.md)."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

SLICES_BYTES = 4 * 2**20
"""At most, of the images that a convolution takes at a time; less would part the 8 frames of an Atari step."""


def convolve(x: jax.Array, weight: jax.Array, stride: int, padding: int, dtype: jnp.dtype) -> jax.Array:
    """A convolution of channels-last `x [B, H, W, C]` by `weight [out, k, k, C]`, in its type; sums of type `dtype`.

    On a CPU the gradients of XLA's own fall into a slow path, 10 times slower and worse in a loop, so the same sum is
    written as matrix products: of a few images at a time where there are many, so that slices stay in the cache and
    the gradient makes them anew instead of keeping them all (docs/performance.md).
    """
    # Gradients of parts are added up in the type of sums, not in that of the layers.
    batch, wide, kind = x.shape[0], weight.astype(dtype), weight.dtype

    def one(part: jax.Array) -> jax.Array:
        return _by_products(part, wide.astype(kind), stride, padding, dtype)

    slices = math.prod((size + 2 * padding - weight.shape[1]) // stride + 1 for size in x.shape[1:3]) * weight[0].nbytes
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


def _by_products(x: jax.Array, weight: jax.Array, stride: int, padding: int, dtype: jnp.dtype) -> jax.Array:
    """`convolve`: blocks of stride x stride pixels become channels; then one product for each row of the kernel."""
    outputs, kernel, sides = weight.shape[0], weight.shape[1], (padding, padding)
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
