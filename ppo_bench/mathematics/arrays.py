"""Every array that a training consists of, declared once: name, shape, type, and what becomes of it.

A training's state is made of flat dictionaries of arrays, named as in the checkpoint. What is exported, restored,
loaded into another run, allocated or restarted follows from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError

Arrays = dict[str, np.ndarray]
Array = Any
"""An array of NumPy, PyTorch or JAX."""
Tree = Mapping[str, Array]
"""Arrays by name."""


class Kind(Enum):
    """The fate of an array.

    | kind | gradient | in a checkpoint | `checkpoint.load` | a restart of the environments |
    |---|---|---|---|---|
    | LEARNT | yes, with moments beside it | yes | takes it | keeps it |
    | FROZEN | no, never changes | yes | takes it | keeps it |
    | STATISTIC | no, follows what is seen | yes | takes it | keeps it |
    | ENVIRONMENT | no | yes, on the host | leaves it | sets it to its fill |
    | MEMORY | no: a rollout's storage | no | leaves it | leaves it |
    """

    LEARNT = "learnt"
    FROZEN = "frozen"
    STATISTIC = "statistic"
    ENVIRONMENT = "environment"
    MEMORY = "memory"


KEPT = (Kind.LEARNT, Kind.FROZEN, Kind.STATISTIC)
"""Kinds that outlast the environments: what `checkpoint.load` takes, and a restart keeps."""


class Declared(NamedTuple):
    """One array."""

    name: str
    """Name in the checkpoint."""
    shape: tuple[int, ...]
    dtype: str
    """NumPy's name of the type that a checkpoint holds."""
    kind: Kind
    fill: float = 0.0
    """Initial value, unless it is drawn (`ppo_bench/mathematics/weights.py`)."""
    env_axis: int | None = None
    """The axis along which the environments lie; None for arrays that all of them share."""

    def filled(self) -> np.ndarray:
        """The array as it begins."""
        return np.full(self.shape, self.fill, self.dtype)

    def of(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """This array of a checkpoint, in its declared type. Raises `ConfigError` if it is not there in this shape."""
        if self.name not in arrays:
            raise ConfigError(f"the checkpoint has no {self.name}: it is of another algorithm")
        array = arrays[self.name]
        if array.shape != self.shape:
            raise ConfigError(
                f"{self.name} is {list(array.shape)} in the checkpoint and {list(self.shape)} in this network: "
                "use the network that it was trained with"
            )
        return array.astype(self.dtype, copy=False)


def of_kinds(declared: Iterable[Declared], *kinds: Kind) -> tuple[Declared, ...]:
    """The arrays of `declared` that are of one of these kinds."""
    return tuple(array for array in declared if array.kind in kinds)


def filled(declared: Iterable[Declared]) -> Arrays:
    """The arrays of `declared` as they begin."""
    return {array.name: array.filled() for array in declared}


def restored(declared: Sequence[Declared], arrays: Mapping[str, np.ndarray], whole: bool = False) -> Arrays:
    """The `declared` arrays of a checkpoint, in their types.

    Raises `ConfigError` if one is not there or has another shape, or if `whole` and the checkpoint has learnt others.
    """
    learnt = {array.name for array in of_kinds(declared, Kind.LEARNT)}
    lacks, besides = learnt - set(arrays), {name for name in arrays if name.startswith("params.")} - learnt
    if lacks or (whole and besides):
        lists = [", ".join(sorted(names)) or "nothing" for names in (lacks, besides)]
        raise ConfigError(
            "the checkpoint is of another network or algorithm: it lacks {}, and has {} besides; "
            "use the network that it was trained with".format(*lists)
        )
    return {array.name: array.of(arrays) for array in declared}


def named(prefix: str, tree: Tree) -> dict[str, Array]:
    """The arrays of `tree` under `prefix`."""
    return {f"{prefix}.{name}": array for name, array in tree.items()}


def under(prefix: str, tree: Tree) -> dict[str, Array]:
    """The arrays of `tree` whose names begin with `prefix` and a dot, without them."""
    return {name.removeprefix(f"{prefix}."): array for name, array in tree.items() if name.startswith(f"{prefix}.")}
