"""The interface of a framework's operations: an array namespace, and operations whose names differ among frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.normalize import Moments

ScanStep = Callable[[Any, Any], tuple[Any, Any]]
"""`(carry, row) -> (carry, output)`."""


class PortableModule(Protocol):
    """A module of both frameworks."""

    def function(self, library: str, **more: Any) -> Callable[..., Any]:
        """The function `(params, *inputs)` of the module of `library`, torch or flax, with `more` options."""


class Ops(Protocol):
    """The operations of a framework.

    Modules compute in the layers' dtype (`Precision.layers`). Networks return arrays in the parameters' dtype
    (`Precision.parameters`).
    """

    xp: Any
    """The array namespace: `torch` or `jax.numpy`."""

    # --- Modules ------------------------------------------------------------------------------------------------------

    def call(self, module: PortableModule, params: Tree, *inputs: Any) -> Any:
        """What `module` returns for `inputs`, computed with those of `params` that are its own."""

    def to_layer_dtype(self, arrays: Tree) -> Tree:
        """Arrays cast to the layers' dtype."""

    def cast_obs(self, obs: Array) -> Array:
        """Observations in the layers' dtype, or in one that the first layer casts."""

    def to_param_dtype(self, x: Array) -> Array:
        """`x` cast to the parameters' dtype."""

    # --- Arrays -------------------------------------------------------------------------------------------------------

    def take(self, x: Array, rows: Array, axis: int) -> Array:
        """The entries `rows [M]`, integers, of `x` along `axis`."""

    def take_windows(self, x: Array, rows: Array, steps: int, stride: int) -> Array:
        """Windows `[M, steps, ...]` of `x [R, ...]`: window m has the entries `rows[m] + k * stride`, k < `steps`."""

    def scan(self, step: ScanStep, carry: Any, rows: Any) -> tuple[Any, Any]:
        """The last carry and the stacked outputs of `step`, applied from the first row to the last.

        `rows` is a dictionary of arrays `[T, ...]`; outputs are dictionaries too.
        """

    def scan_backwards(self, xp: Any, deltas: Array, decays: Array) -> Array:
        """See `ppo_bench.mathematics.ppo.scan_backwards`."""

    # --- Devices ------------------------------------------------------------------------------------------------------

    def all_reduce_sum(self, x: Array) -> Array:
        """The sum of `x` over the devices that share a training; `x` itself where there is one."""

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """Moments of the entries of all those devices, from the moments of one device's entries."""
