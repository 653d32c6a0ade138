"""Layers of the networks in Flax that Flax lacks, or that a CPU computes faster in another way."""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.tuning import jax_convolutions

zeros = nn.initializers.zeros_init()
"""The values that parameters have in Flax; those of a training come from elsewhere (mathematics/weights.py)."""


def leaky_relu(x: jax.Array) -> jax.Array:
    """`torch.nn.LeakyReLU`. The derivative at 0, which black pixels reach, is 0.01; that of `nn.leaky_relu` is 1."""
    return jnp.where(x > 0, x, 0.01 * x)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": nn.relu,
    "leaky_relu": leaky_relu,
    "elu": nn.elu,
    "gelu": functools.partial(nn.gelu, approximate=False),
    "silu": nn.silu,
}


class Dense(nn.Module):
    """`nn.Dense`, whose sums are rounded once where they have few bits, as PyTorch's are."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs `[..., features]` of `x [..., inputs]`."""
        kernel = self.param("kernel", zeros, (x.shape[-1], self.features))
        return affine(x, kernel, self.param("bias", zeros, (self.features,)))


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """`x @ kernel + bias` in the dtype of `kernel`."""
    sums = jnp.matmul(x.astype(kernel.dtype), kernel, preferred_element_type=sums_dtype(kernel))
    return (sums + bias).astype(kernel.dtype)


class Conv(nn.Module):
    """A convolution with a square kernel on images `[B, H, W, C]`, without an activation.

    On a CPU and with `by_products` it consists of matrix products, which train faster than XLA's convolution
    (docs/performance.md).
    """

    features: int
    kernel: int
    stride: int = 1
    padding: int = 0
    by_products: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Images `[B, h, w, features]`; bytes are cast here, where they need least memory."""
        kernel = self.param("kernel", zeros, (self.kernel, self.kernel, x.shape[-1], self.features))
        bias = self.param("bias", zeros, (self.features,))
        if self.by_products and on_cpu() and self.kernel % self.stride == 0:
            sums = jax_convolutions.convolve(
                x, jnp.moveaxis(kernel, -1, 0), self.stride, self.padding, sums_dtype(kernel)
            )
        else:
            layout, padding = ("NHWC", "HWIO", "NHWC"), [(self.padding, self.padding)] * 2
            strides = (self.stride, self.stride)
            x = x.astype(kernel.dtype)
            sums = jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=layout)
        return (sums + bias).astype(kernel.dtype)


def max_pool(x: jax.Array, by_products: bool) -> jax.Array:
    """Max pooling of `[B, H, W, C]` with a 3 x 3 window, stride 2 and padding 1.

    The gradient goes to the maximum; if pixels are equal, to the first of them in row-major order.
    """
    if by_products and on_cpu():
        return jax_convolutions.max_pool(x)
    pooled: jax.Array = nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
    return pooled


class LayerNorm(nn.Module):
    """`nn.LayerNorm`, computed in float32 or float64: JAX takes the variance for a difference of means."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`x [..., D]`, standardised over its last axis, scaled and shifted."""
        scale, bias = (self.param(name, zeros, x.shape[-1:]) for name in ("scale", "bias"))
        return (_standardise(x) * scale + bias).astype(x.dtype)


def standardise(x: jax.Array) -> jax.Array:
    """`x [..., D]` standardised to mean 0 and variance 1 over its last axis, with PyTorch's epsilon."""
    return _standardise(x).astype(x.dtype)


def _standardise(x: jax.Array) -> jax.Array:
    """The same, not yet rounded to few bits."""
    return jax.nn.standardize(x.astype(sums_dtype(x)), epsilon=1e-5)


def sums_dtype(x: jax.Array) -> jnp.dtype:
    """The dtype in which entries of `x` are summed: float32 for floats of fewer bits."""
    return jnp.promote_types(x.dtype, jnp.float32)


def on_cpu() -> bool:
    """Whether JAX computes on a CPU."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # runners set it
    return (device.platform if device else jax.default_backend()) == "cpu"
