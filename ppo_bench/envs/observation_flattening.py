"""Flattening of dictionary, discrete and categorical-grid observations to one vector.

The order is that of gymnasium's `flatten`: the parts of a dictionary sorted by name, discrete values one-hot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import (
    FlattenedBox,
    can_flatten,
    find_leaves,
    is_byte_space,
    is_text,
)

FlattenFunction = Callable[[Any], Any]
"""A function that flattens arrays `[N, ...]` of one space to `[N, D]`."""

MINIGRID_CELL_SIZES = (11, 6, 3)
"""Numbers of object types, colours and states of a cell of MiniGrid (Chevalier-Boisvert et al. 2023)."""


class ObservationFlattener:
    """The flattening of observations of `source` to vectors, without texts.

    Bytes are scaled to 0 to 1 where there are other parts too. Where all parts are bytes they keep their values: the
    network scales them. Images of two axes get an axis for their one channel, which tells them from other matrices.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        """Space of the observations before they are flattened."""
        leaves = _leaves_without_texts(source)
        all_bytes = all(isinstance(leaf, spaces.Box) and is_byte_space(leaf) for leaf in leaves.values())
        parts = {name: _declare_part(leaf, all_bytes) for name, leaf in leaves.items()}
        floats = [part.dtype for part in parts.values() if isinstance(part, spaces.Box) and part.dtype.kind == "f"]
        self._dtype: Any = np.dtype(np.uint8) if all_bytes else np.result_type(*(floats or [np.dtype(np.float32)]))
        self._functions = {name: _flatten_function(leaf, all_bytes) for name, leaf in leaves.items()}
        low, high = (0, 255) if all_bytes else (-np.inf, np.inf)
        size = sum(spaces.flatdim(part) for part in parts.values())
        self.space = FlattenedBox(spaces.Box(low, high, (size,), self._dtype), parts, self)
        """Space of the vectors."""

    def __reduce__(self) -> tuple[type[ObservationFlattener], tuple[Any]]:
        """Constructor and argument for pickle: gymnasium sends spaces to its worker processes."""
        return ObservationFlattener, (self.source,)

    def __call__(self, obs: Any) -> Any:
        """Vectors `[N, D]` of arrays `[N, ...]` in dictionaries and tuples."""
        arrays = dict(find_leaves(obs))
        parts = [function(arrays[name]).astype(self._dtype) for name, function in self._functions.items()]
        return parts[0].__array_namespace__().concatenate(parts, 1)

    def flatten_row(self, obs: Any) -> np.ndarray:
        """The vector `[D]` of one observation."""
        leaves = dict(find_leaves(obs))
        row: np.ndarray = self({name: np.asarray(leaves[name])[None] for name in self._functions})[0]
        return row


def observation_flattener(space: Any) -> ObservationFlattener | None:
    """The flattening of observations of `space`; None if they are one array already or cannot be flattened."""
    leaves = _leaves_without_texts(space)
    is_flattenable = bool(leaves) and all(can_flatten(leaf) for leaf in leaves.values())
    return ObservationFlattener(space) if is_flattenable and not isinstance(space, spaces.Box) else None


def declare_categories(env_id: str, space: Any) -> Any:
    """`space`, with MiniGrid's images declared as `MultiDiscrete`: MiniGrid declares them as bytes, but they hold
    categories. A `MultiBinary` is a board with a plane for each kind of piece, which stays an array."""
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.bool_)
    if not env_id.startswith(("MiniGrid-", "BabyAI-")):
        return space
    grid = space["image"].shape
    return spaces.Dict({**space, "image": spaces.MultiDiscrete(np.broadcast_to(np.array(MINIGRID_CELL_SIZES), grid))})


def dropped_texts(space: Any) -> list[str]:
    """Names of the texts among the observations that were flattened to `space`."""
    if not (isinstance(space, FlattenedBox) and isinstance(space.flatten, ObservationFlattener)):
        return []
    return [name for name, part in find_leaves(space.flatten.source) if is_text(part)]


def _leaves_without_texts(space: Any) -> dict[str, Any]:
    """The parts of `space` by name. Raises `ConfigError` if two have the same name."""
    leaves = list(find_leaves(space))
    names = [name for name, _ in leaves]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two parts of the observations are named {min(twice)}: rename one, without a colon")
    return {name: leaf for name, leaf in leaves if not is_text(leaf)}


def _declare_part(space: Any, all_bytes: bool) -> Any:
    """The space of a part of the observations: bytes as `ObservationFlattener` lays them out, others as they are."""
    if not (isinstance(space, spaces.Box) and is_byte_space(space)):
        return space
    shape = (*space.shape, 1) if len(space.shape) == 2 else space.shape
    return spaces.Box(0, 255, shape, np.uint8) if all_bytes else spaces.Box(0.0, 1.0, shape, np.float32)


def _flatten_function(space: Any, all_bytes: bool) -> FlattenFunction:
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.ravel(), space.start.ravel())
    scaled = isinstance(space, spaces.Box) and is_byte_space(space) and not all_bytes
    return (lambda x: _rows(x) * np.float32(1 / 255)) if scaled else _rows


def _rows(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def _one_hot(sizes: np.ndarray, starts: np.ndarray) -> FlattenFunction:
    """A function from choices `[N, K]` to concatenated one-hot vectors `[N, sum(sizes)]`; values count from `starts`
    `[K]`."""
    component = np.repeat(np.arange(len(sizes)), sizes)
    choice = np.concatenate([start + np.arange(size) for start, size in zip(starts, sizes, strict=True)])
    return lambda x: _rows(x)[:, component] == choice
