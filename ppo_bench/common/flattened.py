"""Spaces of observations that were several arrays and are one vector, with the place of each array in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces


class Placed(NamedTuple):
    """An array within flattened observations."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The first index after the array."""
        return self.start + math.prod(self.shape)


class Flattened(spaces.Box):
    """A flat `Box` that knows the arrays in it, by their path in the original space, such as `camera` or `arm:angles`.

    Choices are one-hot: their shape is that of the one-hot vector.
    """

    def __init__(self, box: Any, parts: Mapping[str, Any]) -> None:
        """`parts` are the spaces that were flattened to `box`, in their order, by path."""
        super().__init__(box.low, box.high, box.shape, box.dtype)
        self.arrays: dict[str, Placed] = {}
        end = 0
        for path, leaf in parts.items():
            shape = leaf.shape if isinstance(leaf, spaces.Box) else (spaces.flatdim(leaf),)
            self.arrays[path] = Placed(end, shape)
            end = self.arrays[path].stop
        assert self.shape == (end,)


def leaves(space: Any, path: str = "") -> dict[str, Any]:
    """The spaces within nested dictionaries and tuples, by their path with colons, in the order of gymnasium's
    `flatten`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        start = f"{path}:" if path else ""
        parts = [leaves(part, f"{start}{name}") for name, part in named]
        return {name: leaf for part in parts for name, leaf in part.items()}
    return {path: space}


def images_in(space: Any, least: int) -> dict[str, Placed]:
    """The arrays of a `Flattened` space that are images of at least `least` pixels a side; none of other spaces."""
    arrays = space.arrays if isinstance(space, Flattened) else {}
    return {path: one for path, one in arrays.items() if len(one.shape) == 3 and np.sort(one.shape)[1] >= least}
