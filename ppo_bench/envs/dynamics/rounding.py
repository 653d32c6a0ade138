"""Operations that round as NumPy does, whatever the array library.

In an unstable system a single rounding changes the trajectory within an episode. Environments that reproduce
gymnasium's trajectories must therefore round where gymnasium does, on a CPU to the last bit. `xp` is `numpy`, `torch`
or `jax.numpy`.
"""

from __future__ import annotations

from typing import Any

from ppo_bench.mathematics.arrays import Array


def round_product(xp: Any, product: Array) -> Array:
    """`product`, rounded before it is added to anything.

    In JAX a minimum without effect keeps XLA from fusing the product with a sum, which would be rounded only once
    (FMA). PyTorch's compiler does not fuse them on a CPU.
    """
    return xp.minimum(product, xp.finfo(product.dtype).max) if _is_jax(xp) else product


def divisor(xp: Any, constant: float) -> Array:
    """A float64 constant to divide by. XLA would replace a division by a plain constant by a product with its
    reciprocal."""
    if not _is_jax(xp):
        return constant
    from jax.lax import optimization_barrier

    return optimization_barrier(xp.asarray(constant, xp.float64))


def square(xp: Any, x: Array) -> Array:
    """`x ** 2` by the C library's `pow`, as NumPy computes it for scalars.

    In about one of a thousand cases it differs from `x * x` by an ulp.
    """
    if _is_jax(xp):
        return xp.power(x, 2.0 + 0.0 * x)  # the compiler would replace a constant exponent by a product
    return _by_c_library(xp, "float_power", x, 2.0 + 0.0 * x)


def sin(xp: Any, x: Array) -> Array:
    """The C library's sine, which NumPy and JAX have; PyTorch's own differs in one of a thousand cases by an ulp."""
    return _by_c_library(xp, "sin", x)


def cos(xp: Any, x: Array) -> Array:
    """The C library's cosine; see `sin`."""
    return _by_c_library(xp, "cos", x)


def _by_c_library(xp: Any, function: str, *arguments: Array) -> Array:
    if xp.__name__ != "torch":
        return getattr(xp, function)(*arguments)
    from ppo_bench.envs.dynamics.c_library import by_c_library

    return by_c_library(function, list(arguments))


def _is_jax(xp: Any) -> bool:
    return bool(xp.__name__ == "jax.numpy")
