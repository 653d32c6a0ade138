"""Operations that round as NumPy does, where XLA's optimisations would round otherwise.

In an unstable system a single rounding changes the trajectory within an episode. Environments that reproduce
gymnasium's trajectories must therefore round where gymnasium does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rounded(product: jax.Array) -> jax.Array:
    """`product`, rounded before it is added to anything.

    A minimum without effect keeps XLA from fusing the product with a sum, which would be rounded only once (FMA).
    """
    return jnp.minimum(product, jnp.finfo(product.dtype).max)


def squared(array: jax.Array) -> jax.Array:
    """`array ** 2` by the C library's `pow`, as NumPy computes it for scalars.

    In about one of a thousand cases it differs from `array * array` by an ulp. The exponent is not a constant, since
    the compiler would replace that by a product.
    """
    return jnp.power(array, 2.0 + 0.0 * array)


def divisor(constant: float) -> jax.Array:
    """A float64 constant to divide by. XLA would replace a division by a plain constant by a product with its
    reciprocal."""
    return jax.lax.optimization_barrier(jnp.asarray(constant, jnp.float64))
