"""Observations that are dictionaries, choices or grids of categories, laid out as one vector of NumPy or JAX.

In the order of gymnasium's `flatten`: a dictionary's parts by name, a choice as ones and zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Part = Callable[[Any], Any]
"""Arrays `[N, ...]` of one kind as `[N, D]`."""

CELLS = (11, 6, 3)
"""Objects, colours and states of a cell of MiniGrid's grids (Chevalier-Boisvert et al. 2023)."""


class Vectors:
    """Observations of `space` as arrays of one kind."""

    def __init__(self, space: Any) -> None:
        from gymnasium import spaces

        if isinstance(space, spaces.MultiBinary):  # a board, a plane of it for each kind of piece
            space = spaces.Box(0, 1, space.shape, np.bool_)
        self.space, self._parts = space, _parts(space)
        """`space`: of what comes out; as it was, where it is an array already or of a kind that has no place here."""
        self.as_given = not self._parts
        """Whether observations are arrays already, and need not be laid out."""
        if self._parts:
            boxes = list(_leaves(space).values())
            floats = [box.dtype for box in boxes if isinstance(box, spaces.Box) and box.dtype.kind == "f"]
            self._dtype = np.result_type(*(floats or [np.dtype(np.float32)]))
            size = sum(spaces.flatdim(box) for box in boxes)
            self.space = spaces.Box(-np.inf, np.inf, (size,), self._dtype)

    def __call__(self, obs: Any) -> Any:
        """Observations `[N, D]` of those `[N, ...]`, or of a dictionary of them; not for those that are `as_given`."""
        arrays = _leaves(obs)
        parts = [part(arrays[name]).astype(self._dtype) for name, part in self._parts.items()]
        return parts[0].__array_namespace__().concatenate(parts, 1)


def categories(env_id: str, space: Any) -> Any:
    """`space`, with the grids that are declared as bytes and hold categories as what they are: those of MiniGrid."""
    from gymnasium import spaces

    if not env_id.startswith(("MiniGrid-", "BabyAI-")):
        return space
    grid = space["image"].shape
    return spaces.Dict({**space, "image": spaces.MultiDiscrete(np.broadcast_to(np.array(CELLS), grid))})


def _parts(space: Any) -> dict[str, Part]:
    """How each part is laid out, by name; none where nothing is to be done, or nothing can be."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return {}
    parts = {name: _part(box) for name, box in _leaves(space).items()}
    return {name: part for name, part in parts.items() if part} if all(parts.values()) else {}


def _leaves(tree: Any, name: str = "") -> dict[str, Any]:
    """Spaces or arrays by name, those within dictionaries as EnvPool's core names them."""
    from gymnasium import spaces

    if not isinstance(tree, dict | spaces.Dict):
        return {name: tree}
    start = f"{name}:" if name else ""
    parts = [_leaves(part, f"{start}{key}") for key, part in sorted(tree.items())]
    return {name: leaf for part in parts for name, leaf in part.items()}


def _part(space: Any) -> Part | None:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.n]), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.ravel(), 0)
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return lambda x: _rows(x) * np.float32(1 / 255)  # as images' bytes: 255 is 1
    return _rows if isinstance(space, spaces.Box | spaces.MultiBinary) else None


def _rows(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def _one_hot(sizes: np.ndarray, first: int) -> Part:
    """Lanes of choices `[N, K]` among `sizes [K]`: 1 in that of each choice, 0 in the others of its component."""
    component = np.repeat(np.arange(len(sizes)), sizes)
    choice = np.concatenate([np.arange(first, first + size) for size in sizes])
    return lambda x: _rows(x)[:, component] == choice
