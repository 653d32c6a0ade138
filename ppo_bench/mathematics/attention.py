"""Attention of one query to a window of rows that carry no gradient, over any of NumPy, PyTorch and JAX.

The caller does not project the rows. It projects the query twice instead, by the query and the key weights, which
gives the same scores. It projects the mean of the rows instead of each row, which gives the same output (Vaswani et
al. 2017, section 3.2, without biases).
"""

from __future__ import annotations

import math
from typing import Any

from ppo_bench.mathematics.arrays import Array

MAX_WAVELENGTH = 1e4
"""The base of the wavelengths of `sinusoids`: they range from 2 pi to almost `2 pi * MAX_WAVELENGTH` positions."""


def attend(xp: Any, query: Array, rows: Array, mask: Array) -> tuple[Array, Array]:
    """Weighted means `[B, H, D]` of `rows [B, L, H, D]` and sums `[B, H]` of the attention weights.

    The weights are the softmax of the products of `query [B, H, D]` and the rows that `mask [B, L]` marks. Where it
    marks no row, the mean and the sum are 0; elsewhere the sum is 1.
    """
    scores = xp.einsum("bhd,blhd->bhl", query, rows)
    weights = masked_softmax(xp, scores, mask[:, None, :])
    return xp.einsum("bhl,blhd->bhd", weights, rows), weights.sum(-1)


def masked_softmax(xp: Any, scores: Array, mask: Array) -> Array:
    """Softmax over the last axis, restricted to the entries that `mask` marks; the other entries are exactly 0."""
    scores = xp.where(mask, scores, -1e9)
    powers = xp.where(mask, xp.exp(scores - xp.amax(scores, -1)[..., None]), 0.0)
    total = powers.sum(-1)[..., None]
    return powers / xp.where(total > 0, total, 1.0)


def sinusoids(xp: Any, positions: Array, like: Array) -> Array:
    """Sinusoidal encodings `[B, D]` of the positions `positions [B]` (Vaswani et al. 2017, section 3.5).

    The first D / 2 components are sines, the others are cosines of the same frequencies. `like [B, D]` gives the
    shape; the dtype is that of `positions`, since one of few bits tells far positions apart no more.
    """
    dim = like.shape[-1]
    components = xp.cumsum(xp.ones_like(like, dtype=positions.dtype), -1) - 1
    sines = components < dim // 2
    frequencies = xp.exp(xp.where(sines, components, components - dim // 2) * (-2 * math.log(MAX_WAVELENGTH) / dim))
    angles = positions[:, None] * frequencies
    return xp.where(sines, xp.sin(angles), xp.cos(angles))
