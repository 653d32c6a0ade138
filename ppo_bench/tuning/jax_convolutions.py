"""Convolutions and max pooling for JAX on a CPU, faster than XLA's own (measured in docs/performance.md)."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

SLICES_BYTES = 4 * 2**20
"""Maximum size of the image patches that one matrix product takes. A smaller limit would split the 8 frames of an Atari
step."""


def convolve(x: jax.Array, weight: jax.Array, stride: int, padding: int, dtype: jnp.dtype) -> jax.Array:
    """The convolution of channels-last `x [B, H, W, C]` by `weight [out, k, k, C]`, computed in the dtype of `weight`.

    The result has dtype `dtype`. On a CPU the gradient of XLA's own convolution takes a slow path
    (docs/performance.md). This function therefore computes matrix products of image patches. Large batches are
    processed a few images at a time, so that the patches stay in the cache; the gradient recomputes patches instead of
    storing them.
    """
    # The weight's gradients of all parts are summed in `dtype`, not in the layers' dtype.
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
    """`MaxPool` of channels-last `x [B, H, W, C]`, first along columns, then along rows.

    The gradient goes to the first of equal pixels. That of `lax.reduce_window` is slow on a CPU (docs/performance.md).
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
    """The computation of `convolve`: blocks of stride x stride pixels become channels; each row of the kernel is then
    one matrix product. The kernel must be a multiple of the stride."""
    outputs, kernel, sides = weight.shape[0], weight.shape[1], (padding, padding)
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
    """The product of `x [B, K]` and the transpose of `matrix [N, K]`, in dtype `dtype`.

    The forward product is fastest by a transposed copy `[K, N]`. The gradient is fastest in the shape `[N, K]`.
    """
    turned = jax.lax.optimization_barrier(matrix.T)  # keeps XLA from folding the transposition into the product
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
