"""Flattening of dictionary, discrete and categorical-grid observations to one vector, for arrays of NumPy or JAX.

The order is that of gymnasium's `flatten`: the parts of a dictionary sorted by name, discrete values one-hot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from ppo_bench.common.flattened import (
    FlattenedBox,
    can_flatten,
    is_byte_space,
    is_text,
    leaf_spaces,
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


def scale_bytes(space: Any) -> tuple[Any, FlattenFunction]:
    """`space` with its bytes scaled to 0 to 1 where it has other parts too, and the function that scales observations.

    Where all parts are bytes they keep their values: the network scales them. Images of two axes get an axis for their
    one channel, which tells them from other matrices.
    """
    all_bytes = all(isinstance(leaf, spaces.Box) and is_byte_space(leaf) for leaf in leaf_spaces(space))
    factor = None if all_bytes else np.float32(1 / 255)
    scaled: tuple[Any, FlattenFunction] = _by_parts(space, functools.partial(_prepare_leaf, factor=factor))
    return scaled


@dataclass(frozen=True)
class RowFlattener:
    """The flattening of arrays `[N, ...]` of `space`, of each row as gymnasium flattens the observation of one
    environment; texts are left out, and bytes are scaled as in `scale_bytes`."""

    space: Any

    def __call__(self, obs: Any) -> np.ndarray:
        """Vectors `[N, D]`."""
        space, select = drop_texts(self.space)
        scaled, scale = scale_bytes(space)
        rows: list[Any] = [spaces.flatten(scaled, scale(row)) for row in iterate(batch_space(space, 1), select(obs))]
        return np.stack(rows)


def flatten_rows(space: Any) -> tuple[FlattenedBox, FlattenFunction] | None:
    """The flat space of `space` and the function that flattens one observation, as `RowFlattener` does; None if
    observations are one array already or cannot be flattened."""
    kept, select = drop_texts(space)
    if isinstance(kept, spaces.Box) or not can_flatten(kept):
        return None
    scaled, scale = scale_bytes(kept)
    box = FlattenedBox(spaces.flatten_space(scaled), leaf_spaces_by_name(scaled), RowFlattener(space))
    return box, lambda obs: spaces.flatten(scaled, scale(select(obs)))


def dropped_texts(space: Any) -> list[str]:
    """Names of the texts among the observations that were flattened to `space`."""
    if not (isinstance(space, FlattenedBox) and isinstance(space.flatten, RowFlattener)):
        return []
    return [name for name, part in leaf_spaces_by_name(space.flatten.space).items() if is_text(part)]


def drop_texts(space: Any) -> tuple[Any, FlattenFunction]:
    """`space` without the texts in its dictionaries and tuples, and the function that leaves them out of observations.

    `space` itself if it has none, or nothing else.
    """
    texts = [is_text(leaf) for leaf in leaf_spaces(space)]
    if not any(texts) or all(texts):
        return space, lambda obs: obs
    result: tuple[Any, FlattenFunction] = _by_parts(
        space, lambda leaf: None if is_text(leaf) else (leaf, lambda obs: obs)
    )
    return result


def _by_parts(space: Any, treat: Callable[[Any], Any]) -> Any:
    """`space` with `treat` applied to each part, and the function for its observations. `treat` returns a space and a
    function, or None to leave the part out; None if no part is left."""
    if isinstance(space, spaces.Dict):
        named = {key: part for key, child in space.items() if (part := _by_parts(child, treat))}
        dictionary = spaces.Dict({key: part for key, (part, _) in named.items()})
        return named and (dictionary, lambda obs: {key: convert(obs[key]) for key, (_, convert) in named.items()})
    if isinstance(space, spaces.Tuple):
        placed = {i: part for i, child in enumerate(space) if (part := _by_parts(child, treat))}
        several = spaces.Tuple([part for part, _ in placed.values()])
        return placed and (several, lambda obs: tuple(convert(obs[i]) for i, (_, convert) in placed.items()))
    return treat(space)


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
    """The spaces or arrays in nested dictionaries, by their path with colons, as in EnvPool's core."""
    if not isinstance(tree, dict | spaces.Dict):
        return {name: tree}
    start = f"{name}:" if name else ""
    parts = [_leaves(part, f"{start}{key}") for key, part in sorted(tree.items())]
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
