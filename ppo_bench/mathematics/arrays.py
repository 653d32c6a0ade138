"""Declarations of the arrays in a training's state: name, shape, dtype and role.

The state consists of flat dictionaries of arrays, named as in the checkpoint. The declarations decide which arrays are
exported, restored, loaded into another run, allocated, and reset when the environments restart.
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
"""A flat dictionary of arrays by name."""


class ArrayRole(Enum):
    """The role of an array. It decides how training, checkpoints and environment restarts treat the array.

    | role | gradient | in a checkpoint | `checkpoint.load` | a restart of the environments |
    |---|---|---|---|---|
    | PARAMETER | yes | yes | loads it | keeps it |
    | FROZEN | no; it never changes | yes | loads it | keeps it |
    | STATISTIC | no; it is updated otherwise, as Adam's moments are | yes | loads it | keeps it |
    | ENVIRONMENT | no | only statistics of environments | ignores it | resets it to `fill` |
    | ROLLOUT | no; it stores a rollout | no | ignores it | keeps it |
    """

    PARAMETER = "parameter"
    FROZEN = "frozen"
    STATISTIC = "statistic"
    ENVIRONMENT = "environment"
    ROLLOUT = "rollout"


PERSISTENT_ROLES = (ArrayRole.PARAMETER, ArrayRole.FROZEN, ArrayRole.STATISTIC)
"""Roles that `checkpoint.load` loads and that an environment restart keeps."""


class ArraySpec(NamedTuple):
    """The declaration of one array."""

    name: str
    """Name in the checkpoint."""
    shape: tuple[int, ...]
    dtype: str
    """NumPy name of the dtype in a checkpoint."""
    role: ArrayRole
    fill: float = 0.0
    """Initial value of every element, unless the array is initialised by `ppo_bench/mathematics/weights.py`."""
    env_axis: int | None = None
    """The axis that indexes environments; None for arrays that all environments share."""

    def default(self) -> np.ndarray:
        """The initial array: `shape`, with `fill` in every element."""
        return np.full(self.shape, self.fill, self.dtype)

    def load(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """This array from a checkpoint's `arrays`, cast to `dtype`. Raises `ConfigError` if it is missing or has
        another shape."""
        if self.name not in arrays:
            raise ConfigError(
                f"the checkpoint has no {self.name}: use the algorithm, and settings such as ppo.adaptive_kl, that it "
                "was trained with"
            )
        array = arrays[self.name]
        if array.shape != self.shape:
            whose = "network" if self.role in (ArrayRole.PARAMETER, ArrayRole.FROZEN) else "algorithm and env.observe"
            raise ConfigError(
                f"{self.name} is {list(array.shape)} in the checkpoint and {list(self.shape)} here: "
                f"use the {whose} that it was trained with, in the same environment"
            )
        return array.astype(self.dtype, copy=False)


def select_roles(specs: Iterable[ArraySpec], *roles: ArrayRole) -> tuple[ArraySpec, ...]:
    """The declarations whose role is one of `roles`."""
    return tuple(array for array in specs if array.role in roles)


def default_arrays(specs: Iterable[ArraySpec]) -> Arrays:
    """The initial arrays, by name."""
    return {array.name: array.default() for array in specs}


def load_arrays(specs: Sequence[ArraySpec], arrays: Mapping[str, np.ndarray], strict: bool = False) -> Arrays:
    """The declared arrays from a checkpoint's `arrays`, by name, cast to their declared dtypes.

    Raises `ConfigError` if an array is missing or has another shape. With `strict`, also if the checkpoint has
    parameters that are not declared.
    """
    expected = {array.name for array in select_roles(specs, ArrayRole.PARAMETER)}
    missing, unexpected = expected - set(arrays), {name for name in arrays if name.startswith("params.")} - expected
    if missing or (strict and unexpected):
        lists = [", ".join(sorted(names)) or "none" for names in (missing, unexpected)]
        raise ConfigError(
            "the checkpoint is of another network or algorithm (missing: {}; unexpected: {}): use the network that it "
            "was trained with".format(*lists)
        )
    return {array.name: array.load(arrays) for array in specs}


def add_prefix(prefix: str, tree: Tree) -> dict[str, Array]:
    """The arrays of `tree`, with `prefix` and a dot added before each name."""
    return {f"{prefix}.{name}": array for name, array in tree.items()}


def select_prefix(prefix: str, tree: Tree) -> dict[str, Array]:
    """The arrays of `tree` whose names begin with `prefix` and a dot; the returned names lack both."""
    return {name.removeprefix(f"{prefix}."): array for name, array in tree.items() if name.startswith(f"{prefix}.")}
