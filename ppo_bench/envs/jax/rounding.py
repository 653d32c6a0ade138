"""Rounding as NumPy does, against the liberties of XLA's compiler.

Unstable systems turn one rounding into another trajectory within an episode, so that environments that are to follow
gymnasium's must round where it does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rounded(product: jax.Array) -> jax.Array:
    """`product`, which a minimum that never acts keeps from being fused with a sum and rounded only once (FMA)."""
    return jnp.minimum(product, jnp.finfo(product.dtype).max)


def squared(array: jax.Array) -> jax.Array:
    """`array ** 2` as of a NumPy scalar: by the C library's `pow`, an ulp off `array * array` once in a thousand times.

    With a constant exponent the compiler would multiply.
    """
    return jnp.power(array, 2.0 + 0.0 * array)


def divisor(constant: float) -> jax.Array:
    """A float64 constant to divide by; a division by a plain one would become a product with its reciprocal."""
    return jax.lax.optimization_barrier(jnp.asarray(constant, jnp.float64))
