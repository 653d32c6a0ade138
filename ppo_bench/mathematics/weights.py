"""Initial weights from the seed, in one neutral layout that every framework loads.

Parameters are named `<part>.<index>.<weight|bias>`. The neutral layout is float32 and channels last:

    linear weight   [outputs, inputs]
    conv weight     [outputs, height, width, inputs]

and a convolution's output is flattened as (height, width, channel). Checkpoints hold
the same layout, in the precision of the run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ppo_bench.mathematics import noise


class Parameter(NamedTuple):
    """One array of a network, and how it starts: orthogonal with `gain`, or all `fill` if that is None."""

    name: str
    shape: tuple[int, ...]
    gain: float | None
    fill: float = 0.0


def orthogonal(normals: np.ndarray, gain: float) -> np.ndarray:
    """A `[rows, columns]` matrix with orthonormal rows or columns times `gain` (Saxe et al. 2014), from normals."""
    rows, columns = normals.shape
    q, r = np.linalg.qr(normals if rows >= columns else normals.T)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the decomposition, and so the distribution, unique
    return gain * (q if rows >= columns else q.T)


def initial_weights(parameters: tuple[Parameter, ...], seed: int) -> dict[str, np.ndarray]:
    """Float32 arrays by name; the k-th parameter draws from its own key, so adding one at the end changes no other."""
    return {parameter.name: _initial(parameter, index, seed) for index, parameter in enumerate(parameters)}


def _initial(parameter: Parameter, index: int, seed: int) -> np.ndarray:
    if parameter.gain is None:
        return np.full(parameter.shape, parameter.fill, np.float32)
    rows, columns = parameter.shape[0], math.prod(parameter.shape[1:])
    one = np.ones(1, np.int32)
    key = noise.stream_key(np, one * seed, noise.Stream.WEIGHTS, one * index, one * 0)
    places = np.arange(rows, dtype=np.int32)[:, None], np.arange(columns, dtype=np.int32)[None, :]
    normals = noise.normal(np, noise.threefry2x32(key, places), np.float64)
    return orthogonal(normals, parameter.gain).reshape(parameter.shape).astype(np.float32)
