"""The operations of a framework: an array namespace, and what has no common name in all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.networks.layers import Activation, CellName, Conv, Spread

EPSILON = 1e-5
"""Added to the variance by which layers are standardised, as PyTorch does."""

ScanStep = Callable[[Any, Any], tuple[Any, Any]]
"""`(carry, row) -> (carry, output)`."""


class Ops(Protocol):
    """A framework's operations. Layers compute in a type of their own; what a network returns is of the parameters'."""

    xp: Any
    """`torch` or `jax.numpy`."""

    # --- Arrays -------------------------------------------------------------------------------------------------------

    def take(self, x: Array, rows: Array, axis: int) -> Array:
        """The entries `rows [M]`, integers, of `x` along `axis`."""

    def take_windows(self, x: Array, rows: Array, steps: int, stride: int) -> Array:
        """Windows `[M, steps, ...]` of `x [R, ...]`: its entries `rows [M]`, and those `stride`, `2 * stride`... on."""

    def scan(self, step: ScanStep, carry: Any, rows: Any) -> tuple[Any, Any]:
        """`step` from the first row of the dictionary `rows`, `[T, ...]` each, to the last: the carry after it, and the
        dictionaries of outputs, stacked."""

    def scan_backwards(self, xp: Any, deltas: Array, decays: Array) -> Array:
        """`ppo_bench.mathematics.ppo.scan_backwards`."""

    # --- Layers -------------------------------------------------------------------------------------------------------

    def for_layers(self, params: Tree) -> Tree:
        """Parameters in the layers' type."""

    def flat(self, obs: Array) -> Array:
        """Observations `[B, D]` in the layers' type."""

    def images(self, obs: Array) -> Array:
        """Observations `[B, H, W, C]` as image layers take them."""

    def flattened(self, x: Array) -> Array:
        """Outputs of image layers as `[B, H * W * C]`, in the layers' type."""

    def linear(self, x: Array, weight: Array, bias: Array, activation: Activation | None) -> Array:
        """`x @ weight.T + bias` `[B, out]` of `x [B, in]`, then `activation`."""

    def recur(
        self, cell: CellName, projected: Array, start: Array, state: tuple[Array, ...], weight: Array, bias: Array
    ) -> Array:
        """Hidden states `[T, B, H]` of `cell` from `state`, `[B, H]` each, which is forgotten before each step where
        `start [T, B]` is 1; `projected [T, B, G]` comes from the input, `weight [G, H]` and `bias [G]` project the
        hidden state."""

    def convolve(self, layer: Conv, x: Array, weight: Array, bias: Array) -> Array:
        """`layer` and its activation, on images."""

    def spread(self, layer: Spread, x: Array, weight: Array, bias: Array) -> Array:
        """`layer` and its activation, `[B, H, W, C]` of `x [B, h, w, c]`, channels last."""

    def max_pool(self, x: Array) -> Array:
        """`MaxPool`, on images."""

    def standardised(self, x: Array) -> Array:
        """`x [..., D]` with mean 0 and variance 1 over its last axis (Ba et al. 2016, with `EPSILON`)."""

    def activate(self, activation: Activation | None, x: Array) -> Array:
        """`activation` of what nothing else needs; None leaves it."""

    def relu(self, x: Array) -> Array:
        """The rectifier; `x` stays as it is."""

    def full(self, x: Array) -> Array:
        """`x` in the parameters' type."""
