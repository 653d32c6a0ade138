"""Initial weights: NumPy arrays computed from the seed, in a neutral layout that every framework loads.

Parameters of layers are named `<part>.<index>.<weight|bias>`. The neutral layout is float32 and channels last:

    linear weight   [outputs, inputs]
    conv weight     [outputs, height, width, inputs]

A convolution's output is flattened as (height, width, channel). Checkpoints have the same layout, in the precision of
the run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ppo_bench.mathematics import noise


class Parameter(NamedTuple):
    """The declaration of one array of a network.

    Its initial value is an orthogonal matrix times `gain`; if `gain` is None, elements uniform between `-bound` and
    `bound`; and if `bound` is None, too, `fill` in every element.
    """

    name: str
    shape: tuple[int, ...]
    gain: float | None
    fill: float = 0.0
    bound: float | None = None


def orthogonal(normals: np.ndarray, gain: float) -> np.ndarray:
    """A matrix `[rows, columns]` with orthonormal rows or columns, times `gain` (Saxe et al. 2014).

    `normals [rows, columns]` are standard normal variates.
    """
    rows, columns = normals.shape
    q, r = np.linalg.qr(normals if rows >= columns else normals.T)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the decomposition unique, and q uniformly distributed
    return gain * (q if rows >= columns else q.T)


def initial_weights(parameters: tuple[Parameter, ...], seed: int) -> dict[str, np.ndarray]:
    """The initial float32 arrays by name.

    The k-th parameter has a random key of its own, so that a parameter added at the end changes no other.
    """
    return {parameter.name: _initial_weight(parameter, index, seed) for index, parameter in enumerate(parameters)}


def _initial_weight(parameter: Parameter, index: int, seed: int) -> np.ndarray:
    if parameter.gain is None and parameter.bound is None:
        return np.full(parameter.shape, parameter.fill, np.float32)
    rows, columns = parameter.shape[0], math.prod(parameter.shape[1:])
    one = np.ones(1, np.int32)
    key = noise.stream_key(np, one * seed, noise.Stream.WEIGHTS, one * index, one * 0)
    indices = np.arange(rows, dtype=np.int32)[:, None], np.arange(columns, dtype=np.int32)[None, :]
    words = noise.threefry2x32(key, indices)
    if parameter.gain is None:
        values = parameter.bound * (2.0 * noise.uniform(np, words[0], np.float64) - 1.0)
    else:
        values = orthogonal(noise.normal(np, words, np.float64), parameter.gain)
    return values.reshape(parameter.shape).astype(np.float32, order="C")
