"""Spaces of observations that were several arrays and are one vector, with the place of each array in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces


class FlattenedArray(NamedTuple):
    """An array within flattened observations."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The first index after the array."""
        return self.start + math.prod(self.shape)


class FlattenedBox(spaces.Box):
    """A flat `Box` that knows the arrays in it, in their order. A choice is the array of its one-hot vector."""

    def __init__(self, box: Any, parts: Mapping[str, Any], flatten: Callable[[Any], Any]) -> None:
        """`parts` are the spaces, by name, that were flattened to `box` by `flatten`.

        `flatten` makes vectors `[N, D]` from arrays `[N, ...]` of the spaces, in their dictionaries and tuples.
        """
        super().__init__(box.low, box.high, box.shape, box.dtype)
        arrays: list[FlattenedArray] = []
        self.names = tuple(parts)
        for part in parts.values():
            shape = part.shape if isinstance(part, spaces.Box) else (spaces.flatdim(part),)
            arrays.append(FlattenedArray(arrays[-1].stop if arrays else 0, shape))
        self.arrays = tuple(arrays)
        self.flatten = flatten


def find_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The spaces or arrays in nested dictionaries and tuples, with their keys and places joined by colons, as in
    EnvPool's core. Dictionaries are sorted by their keys, as by gymnasium's `flatten`."""
    if not isinstance(tree, Mapping | tuple | spaces.Tuple):
        yield name, tree
        return
    for key, part in sorted(tree.items()) if isinstance(tree, Mapping) else enumerate(tree):
        yield from find_leaves(part, f"{name}:{key}" if name else str(key))


def is_text(space: Any) -> bool:
    """Whether the observations of `space` are strings, as those of `Text` and of MiniGrid's missions are."""
    return space.dtype is not None and space.dtype.kind == "U"


def is_byte_space(space: Any) -> bool:
    """Whether the observations of a gymnasium space are bytes up to 255, which networks divide by 255.

    Bytes with lower bounds, such as the counts of an inventory, are numbers like others.
    """
    return space.dtype == np.uint8 and bool(np.max(space.high, initial=0) == 255)


def can_flatten(space: Any) -> bool:
    """Whether gymnasium flattens observations of `space` to one vector, and none of its parts are texts."""
    try:
        leaves = [leaf for _, leaf in find_leaves(space)]
        chosen = any(isinstance(leaf, spaces.OneOf) for leaf in leaves)  # its observations are pairs
        return bool(space.is_np_flattenable) and not chosen and not any(map(is_text, leaves))
    except NotImplementedError:  # a kind of space that gymnasium does not know
        return False
