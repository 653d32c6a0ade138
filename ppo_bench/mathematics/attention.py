"""Attention of one query to a window of rows that keep no gradient, over any of NumPy, PyTorch and JAX.

Rows are never projected. A product of a projected query and a projected row is one of the query, projected twice, and
the row; and a mean of projected rows is the projected mean (Vaswani et al. 2017, section 3.2, without biases).
"""

from __future__ import annotations

import math
from typing import Any

Array = Any  # an array of whichever namespace `xp` is

LONGEST = 1e4
"""The longest period of `sinusoids`, in places, but for a factor of 2 pi."""


def attend(xp: Any, query: Array, rows: Array, seen: Array) -> tuple[Array, Array]:
    """Means `[B, H, D]` of `rows [B, L, H, D]`, weighted by the softmax of their products with `query [B, H, D]`; and
    the sums `[B, H]` of the weights: 1, or 0 where no row is `seen [B, L]`, of which the mean is 0."""
    scores = xp.einsum("bhd,blhd->bhl", query, rows)
    weights = masked_softmax(xp, scores, seen[:, None, :])
    return xp.einsum("bhl,blhd->bhd", weights, rows), weights.sum(-1)


def masked_softmax(xp: Any, scores: Array, seen: Array) -> Array:
    """The softmax over the last axis of what is `seen`, exactly 0 elsewhere; all of it 0 where nothing is."""
    scores = xp.where(seen, scores, -1e9)
    powers = xp.where(seen, xp.exp(scores - xp.amax(scores, -1)[..., None]), 0.0)
    total = powers.sum(-1)[..., None]
    return powers / xp.where(total > 0, total, 1.0)


def sinusoids(xp: Any, places: Array, like: Array) -> Array:
    """Positions `[B, D]` of `places [B]`, of the shape and type of `like [B, D]`: sines of D / 2 frequencies, and then
    cosines (Vaswani et al. 2017, section 3.5)."""
    dim = like.shape[-1]
    lanes = xp.cumsum(xp.ones_like(like), -1) - 1
    sines = lanes < dim // 2
    frequencies = xp.exp(xp.where(sines, lanes, lanes - dim // 2) * (-2 * math.log(LONGEST) / dim))
    angles = places[:, None] * frequencies
    return xp.where(sines, xp.sin(angles), xp.cos(angles))
