"""Flattening of dictionary, discrete and categorical-grid observations to one vector, for arrays of NumPy or JAX.

The order is that of gymnasium's `flatten`: the parts of a dictionary sorted by name, discrete values one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.common.flattened import (
    FlattenedBox,
    can_flatten,
    is_byte_space,
    is_text,
    leaf_spaces_by_name,
)

FlattenFunction = Callable[[Any], Any]
"""A function that flattens arrays `[N, ...]` of one space to `[N, D]`."""

MINIGRID_CELL_SIZES = (11, 6, 3)
"""Numbers of object types, colours and states of a cell of MiniGrid (Chevalier-Boisvert et al. 2023)."""


class ObservationFlattener:
    """The flattening of observations of `space`; observations that are one array already stay as they are."""

    def __init__(self, space: Any) -> None:
        if isinstance(space, spaces.MultiBinary):  # a board, with a plane for each kind of piece
            space = spaces.Box(0, 1, space.shape, np.bool_)
        self.space, self._parts = space, _parts(space)
        """Space of the results: a flat `Box`, or the given space if it is a `Box` already or cannot be flattened."""
        self.is_identity = not self._parts
        """Whether observations are not flattened."""
        if self._parts:
            boxes = _leaves(space)
            floats = [box.dtype for box in boxes.values() if isinstance(box, spaces.Box) and box.dtype.kind == "f"]
            self._dtype = np.result_type(*(floats or [np.dtype(np.float32)]))
            size = sum(spaces.flatdim(box) for box in boxes.values())
            parts = {name: _prepare_leaf(box, None)[0] for name, box in boxes.items()}
            self.space = FlattenedBox(spaces.Box(-np.inf, np.inf, (size,), self._dtype), parts, self)

    def __call__(self, obs: Any) -> Any:
        """Flattened observations `[N, D]`, from an array `[N, ...]` or a dictionary of arrays; not if `is_identity`."""
        arrays = _leaves(obs)
        parts = [part(arrays[name]).astype(self._dtype) for name, part in self._parts.items()]
        return parts[0].__array_namespace__().concatenate(parts, 1)


def declare_categories(env_id: str, space: Any) -> Any:
    """`space`, with MiniGrid's images declared as `MultiDiscrete`: MiniGrid declares them as bytes, but they hold
    categories."""
    if not env_id.startswith(("MiniGrid-", "BabyAI-")):
        return space
    grid = space["image"].shape
    return spaces.Dict({**space, "image": spaces.MultiDiscrete(np.broadcast_to(np.array(MINIGRID_CELL_SIZES), grid))})


class RowFlattener:
    """The flattening of observations of one environment, as gymnasium's `flatten` does, without texts.

    Bytes are scaled to 0 to 1 where there are other parts too. Where all parts are bytes they keep their values: the
    network scales them. Images of two axes get an axis for their one channel, which tells them from other matrices.
    """

    def __init__(self, space: Any) -> None:
        self.space = space
        """Space of the observations before they are flattened."""
        leaves = _leaves_without_texts(space)
        all_bytes = all(isinstance(leaf, spaces.Box) and is_byte_space(leaf) for leaf in leaves.values())
        factor = None if all_bytes else np.float32(1 / 255)
        prepared = {name: _prepare_leaf(leaf, factor) for name, leaf in leaves.items()}
        parts = {name: part for name, (part, _) in prepared.items()}
        self._prepare = {name: prepare for name, (_, prepare) in prepared.items()}
        self._parts = spaces.Tuple(list(parts.values()))
        self.box = FlattenedBox(spaces.flatten_space(self._parts), parts, self)
        """Space of the vectors."""

    def __reduce__(self) -> tuple[type[RowFlattener], tuple[Any]]:
        """Constructor and argument for pickle: gymnasium sends spaces to its worker processes."""
        return RowFlattener, (self.space,)

    def flatten(self, obs: Any) -> Any:
        """The vector `[D]` of one observation."""
        leaves = _leaves(obs)
        return spaces.flatten(self._parts, tuple(prepare(leaves[name]) for name, prepare in self._prepare.items()))

    def __call__(self, obs: Any) -> np.ndarray:
        """Vectors `[N, D]` of arrays `[N, ...]`."""
        arrays = _leaves(obs)
        leaves = {name: arrays[name] for name in self._prepare}
        num_rows = max(len(leaf) for leaf in leaves.values())
        return np.stack([self.flatten({name: leaf[i] for name, leaf in leaves.items()}) for i in range(num_rows)])


def row_flattener(space: Any) -> RowFlattener | None:
    """The flattening of observations of `space`; None if they are one array already or cannot be flattened."""
    leaves = _leaves_without_texts(space)
    is_flattenable = bool(leaves) and all(can_flatten(leaf) for leaf in leaves.values())
    return RowFlattener(space) if is_flattenable and not isinstance(space, spaces.Box) else None


def dropped_texts(space: Any) -> list[str]:
    """Names of the texts among the observations that were flattened to `space`."""
    if not (isinstance(space, FlattenedBox) and isinstance(space.flatten, RowFlattener)):
        return []
    return [name for name, part in leaf_spaces_by_name(space.flatten.space).items() if is_text(part)]


def _leaves_without_texts(space: Any) -> dict[str, Any]:
    return {name: leaf for name, leaf in _leaves(space).items() if not is_text(leaf)}


def _prepare_leaf(space: Any, factor: np.float32 | None) -> tuple[Any, FlattenFunction]:
    """A part of the observations with its bytes multiplied by `factor`, and the function for its observations."""
    if not (isinstance(space, spaces.Box) and is_byte_space(space)):
        return space, lambda obs: obs
    shape = _with_channel(space.shape)
    if factor is None:
        return spaces.Box(0, 255, shape, np.uint8), lambda obs: np.reshape(obs, shape)
    return spaces.Box(0.0, 1.0, shape, np.float32), lambda obs: np.reshape(obs, shape) * factor


def _with_channel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of bytes, with an axis for the channel of those of two axes, which may be images."""
    return (*shape, 1) if len(shape) == 2 else shape


def _parts(space: Any) -> dict[str, FlattenFunction]:
    """The flattening functions of the parts of `space`, by name; empty if `space` is a `Box` or cannot be flattened."""
    if isinstance(space, spaces.Box):
        return {}
    parts = {name: _part(box) for name, box in _leaves(space).items()}
    return {name: part for name, part in parts.items() if part} if all(parts.values()) else {}


def _leaves(tree: Any, name: str = "") -> dict[str, Any]:
    """The spaces or arrays in nested dictionaries and tuples, by their path with colons, as in EnvPool's core.

    Dictionaries are sorted by their keys.
    """
    if not isinstance(tree, Mapping | tuple | spaces.Tuple):
        return {name: tree}
    start = f"{name}:" if name else ""
    items = sorted(tree.items()) if isinstance(tree, Mapping) else enumerate(tree)
    parts = [_leaves(part, f"{start}{key}") for key, part in items]
    return {name: leaf for part in parts for name, leaf in part.items()}


def _part(space: Any) -> FlattenFunction | None:
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.n]), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.ravel(), 0)
    if isinstance(space, spaces.Box) and is_byte_space(space):
        return lambda x: _rows(x) * np.float32(1 / 255)  # bytes are scaled to 0 to 1, as those of images are
    return _rows if isinstance(space, spaces.Box | spaces.MultiBinary) else None


def _rows(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def _one_hot(sizes: np.ndarray, first: int) -> FlattenFunction:
    """A function from choices `[N, K]` to concatenated one-hot vectors `[N, sum(sizes)]`; values count from `first`."""
    component = np.repeat(np.arange(len(sizes)), sizes)
    choice = np.concatenate([np.arange(first, first + size) for size in sizes])
    return lambda x: _rows(x)[:, component] == choice
