"""The devices of a training in JAX, and programs that each of them runs on its part of the environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ppo_bench.envs.base import DEVICES
from ppo_bench.mathematics.arrays import Declared

SAME = Spec()
"""An array that every device has as a whole."""


def along(axis: int | None) -> Spec:
    """An array of which every device has a part along `axis`; None for `SAME`."""
    return SAME if axis is None else Spec(*(None,) * axis, DEVICES)


def specs_of(declared: Iterable[Declared]) -> dict[str, Spec]:
    """How declared arrays lie on the devices, by name: in parts along the environments, or whole."""
    return {array.name: along(array.env_axis) for array in declared}


class Devices:
    """One device or more, between which the environments are divided."""

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.first, self.count = devices[0], len(devices)
        self._mesh = Mesh(np.array(devices), (DEVICES,))

    @property
    def axis(self) -> str | None:
        """The name by which a program's reductions know the devices; None where there is one."""
        return DEVICES if self.count > 1 else None

    def index(self) -> Any:
        """Within a program, the number of the device that runs it; 0 where there is one."""
        return jax.lax.axis_index(DEVICES) if self.count > 1 else 0

    def put(self, tree: Any, specs: Any) -> Any:
        """`tree` on the devices, laid out by `specs`, which may be of parts of the tree."""
        return jax.device_put(tree, self.first if self.count == 1 else self._shardings(specs))

    def program(self, function: Callable[..., Any], inputs: tuple[Any, ...], outputs: Any, donated: Any = ()) -> Any:
        """`function` compiled. Each device calls it on its parts of the arguments; `inputs` and `outputs` are specs.

        Arguments that are arrays of the host should be put on the devices first: else each gets the whole of them.
        """
        if self.count == 1:
            return jax.jit(function, donate_argnums=donated)
        program = jax.shard_map(function, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return jax.jit(program, donate_argnums=donated)

    def _shardings(self, specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), specs, is_leaf=_is_spec)


def _is_spec(tree: Any) -> bool:
    return isinstance(tree, Spec)
