"""The interface of a framework's operations: an array namespace, and operations whose names differ among frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.normalize import Moments
from ppo_bench.networks.layers import Activation, CellName, Conv, Spread

EPSILON = 1e-5
"""The epsilon of layer normalisation, added to the variance: PyTorch's default."""

ScanStep = Callable[[Any, Any], tuple[Any, Any]]
"""`(carry, row) -> (carry, output)`."""


class Ops(Protocol):
    """The operations of a framework.

    Layers compute in the layers' dtype (`Precision.layers`). Networks return arrays in the parameters' dtype
    (`Precision.parameters`).
    """

    xp: Any
    """The array namespace: `torch` or `jax.numpy`."""

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

    def total(self, x: Array) -> Array:
        """The sum of `x` over the devices that share a training; `x` itself where there is one."""

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all those devices, from the moments of one device's entries."""

    # --- Layers -------------------------------------------------------------------------------------------------------

    def for_layers(self, params: Tree) -> Tree:
        """Parameters cast to the layers' dtype."""

    def flat(self, obs: Array) -> Array:
        """Observations `[B, D]` cast to the layers' dtype."""

    def images(self, obs: Array) -> Array:
        """Observations `[B, H, W, C]` in the framework's layout for image layers."""

    def flattened(self, x: Array) -> Array:
        """Outputs of image layers, flattened to `[B, H * W * C]`, in the layers' dtype."""

    def linear(self, x: Array, weight: Array, bias: Array, activation: Activation | None) -> Array:
        """`activation(x @ weight.T + bias)`, `[B, out]`, for `x [B, in]`."""

    def recur(
        self, cell: CellName, projected: Array, start: Array, state: tuple[Array, ...], weight: Array, bias: Array
    ) -> Array:
        """Hidden states `[T, B, H]` of `cell` over a sequence.

        `projected [T, B, G]` are the projections of the inputs. `state`, `[B, H]` each, is the state before the first
        step; the state is set to 0 before each step where `start [T, B]` is 1. `weight [G, H]` and `bias [G]` project
        the hidden state.
        """

    def convolve(self, layer: Conv, x: Array, weight: Array, bias: Array) -> Array:
        """Output of the convolution `layer` and its activation, for images `x` in the layout of `images`."""

    def spread(self, layer: Spread, x: Array, weight: Array, bias: Array) -> Array:
        """Output `[B, H, W, C]` of the transposed convolution `layer` and its activation, for `x [B, h, w, c]`."""

    def max_pool(self, x: Array) -> Array:
        """`MaxPool` applied to images `x` in the layout of `images`."""

    def standardised(self, x: Array) -> Array:
        """`x [..., D]` standardised to mean 0 and variance 1 over its last axis (Ba et al. 2016, with `EPSILON`)."""

    def activate(self, activation: Activation | None, x: Array) -> Array:
        """`activation(x)`, which may overwrite `x`; None is the identity."""

    def relu(self, x: Array) -> Array:
        """`max(x, 0)`, which does not overwrite `x`."""

    def full(self, x: Array) -> Array:
        """`x` cast to the parameters' dtype."""


def normalised(ops: Ops, params: Tree, name: str, x: Array) -> Array:
    """`x [..., D]` standardised, then scaled and shifted by the parameters of the layer normalisation `name`."""
    return ops.standardised(x) * params[f"{name}.weight"] + params[f"{name}.bias"]
