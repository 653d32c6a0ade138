"""Devices of a training in JAX, and programs that run on each of them with its part of the environments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ppo_bench.mathematics.arrays import ArraySpec

DEVICES = "devices"
"""The mesh axis of the devices that share a program."""
REPLICATED = Spec()
"""Spec of an array that is replicated on every device."""


def sharded_along(axis: int | None) -> Spec:
    """Spec of an array that is divided among the devices along `axis`; `REPLICATED` if `axis` is None."""
    return REPLICATED if axis is None else Spec(*(None,) * axis, DEVICES)


def specs_of(declared: Iterable[ArraySpec]) -> dict[str, Spec]:
    """Specs of declared arrays, by name: divided along the axis of environments, or replicated without one."""
    return {array.name: sharded_along(array.env_axis) for array in declared}


class DeviceMesh:
    """One or more devices, among which the environments are divided; those of other processes are among them.

    Arrays on the host are of this process's environments.
    """

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        own = [device for device in devices if device.process_index == jax.process_index()]
        self.first, self.count = own[0], len(devices)
        self._is_single_process = self._is_connected = len(own) == len(devices)
        self._mesh = Mesh(np.array(devices), (DEVICES,))

    @property
    def axis(self) -> str | None:
        """Name of the devices' mesh axis for reductions within a program; None if there is one device."""
        return DEVICES if self.count > 1 else None

    def index(self) -> Any:
        """Index of the device that runs the program, for use within it; 0 if there is one device."""
        return jax.lax.axis_index(DEVICES) if self.count > 1 else 0

    def connect(self) -> None:
        """Connect the devices of several processes, which all call this at the same time.

        Gloo would do so in the first program with a sum, and wait 30 seconds; one process may compile for longer.
        """
        if not self._is_connected:
            program = self.jit(lambda: jax.lax.psum(jax.lax.axis_index(DEVICES), DEVICES), (), REPLICATED)
            jax.block_until_ready(program())
            self._is_connected = True

    def put(self, tree: Any, specs: Any) -> Any:
        """`tree` on the devices, laid out by `specs`; a spec may apply to a whole subtree."""
        if self._is_single_process:
            return jax.device_put(tree, self.first if self.count == 1 else self._shardings(specs))
        return jax.tree.map(
            lambda sharding, own: jax.tree.map(functools.partial(_join_processes, sharding), own),
            self._shardings(specs),
            tree,
        )

    def local_array(self, array: jax.Array) -> np.ndarray:
        """This process's part of an array on the devices, on the host."""
        if self._is_single_process or array.is_fully_replicated:
            return np.asarray(array)
        axis = next(axis for axis, name in enumerate(array.sharding.spec) if name is not None)  # type: ignore[attr-defined]
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[axis].start)
        return np.concatenate([shard.data for shard in shards], axis)

    def fetch(self, tree: Any) -> Any:
        """This process's part of every array of `tree`, on the host."""
        return jax.device_get(tree) if self._is_single_process else jax.tree.map(self.local_array, tree)

    def jit(self, function: Callable[..., Any], inputs: tuple[Any, ...], outputs: Any, donated: Any = ()) -> Any:
        """Compiled `function`. Each device calls it with its parts of the arguments; `inputs` and `outputs` are specs.

        Host arrays should be put on the devices by `put` first. Otherwise each device receives the whole array.
        """
        if self.count == 1:
            return jax.jit(function, donate_argnums=donated)
        program = jax.shard_map(function, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return jax.jit(program, donate_argnums=donated)

    def _shardings(self, specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), specs, is_leaf=_is_spec)


def _join_processes(sharding: NamedSharding, array: Any) -> jax.Array:
    """`array` of this process with those of the others, as one array."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return array
    return jax.make_array_from_process_local_data(sharding, np.asarray(array))


def _is_spec(tree: Any) -> bool:
    return isinstance(tree, Spec)
