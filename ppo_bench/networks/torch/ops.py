"""PyTorch implementation of the layer operations (`Ops`, ppo_bench/networks/ops.py)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.normalize import Moments, pooled
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.layers import Activation, CellName, Conv, Spread
from ppo_bench.networks.ops import EPSILON, ScanStep
from ppo_bench.networks.torch.recurrence import recur

Params = dict[str, Tensor]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "leaky_relu": functools.partial(F.leaky_relu, inplace=True),
    "elu": functools.partial(F.elu, inplace=True),
    "gelu": F.gelu,
    "silu": F.silu,
}
"""Activations, in place where the gradient can be had from the output: in-place work passes over memory once less."""


def named_views(flat: Tensor, parameters: Sequence[Parameter]) -> Params:
    """Views of the vector `flat [P]`, by parameter name; it holds all `parameters` in their order.

    With a single vector, the gradient's norm and Adam's step are single operations, whatever the number of layers.
    """
    parts = flat.split([math.prod(parameter.shape) for parameter in parameters])
    return {p.name: part.view(p.shape) for p, part in zip(parameters, parts, strict=True)}


class Peers(Protocol):
    """The processes that share a training, each with a device of its own."""

    def total(self, x: Tensor) -> Tensor:
        """The sum of `x` over the processes, the same bits in each."""

    def gather(self, x: Tensor) -> Tensor:
        """`x` of every process, stacked in their order."""


class TorchOps:
    """`Ops` in PyTorch, with parameters of dtype `dtype` and layers that compute in the dtype `layers`."""

    xp: Any = torch

    def __init__(self, dtype: torch.dtype, layers: torch.dtype, peers: Peers | None = None) -> None:
        """`peers` are the processes that share the training; None for a process alone."""
        self._dtype, self._layers, self._peers = dtype, layers, peers

    def total(self, x: Tensor) -> Tensor:
        """See `Ops.total`."""
        return self._peers.total(x) if self._peers else x

    def across(self, seen: Moments) -> Moments:
        """See `Ops.across`."""
        return pooled(torch, seen, self._peers.gather) if self._peers else seen

    def take(self, x: Tensor, rows: Tensor, axis: int) -> Tensor:
        """See `Ops.take`."""
        return x.index_select(axis, rows)

    def take_windows(self, x: Tensor, rows: Tensor, steps: int, stride: int) -> Tensor:
        """See `Ops.take_windows`."""
        places = rows[:, None] + stride * torch.arange(steps, dtype=rows.dtype, device=rows.device)
        return x.index_select(0, places.view(-1)).view(*places.shape, *x.shape[1:])

    def scan(self, step: ScanStep, carry: Any, rows: Any) -> tuple[Any, Any]:
        """See `Ops.scan`; a Python loop."""
        outputs = []
        for t in range(len(next(iter(rows.values())))):
            carry, output = step(carry, {name: x[t] for name, x in rows.items()})
            outputs.append(output)
        return carry, {name: torch.stack([output[name] for output in outputs]) for name in outputs[0]}

    def scan_backwards(self, xp: Any, deltas: Tensor, decays: Tensor) -> Tensor:
        """See `Ops.scan_backwards`."""
        result: Tensor = ppo.scan_backwards(xp, deltas, decays)
        return result

    def for_layers(self, params: Tree) -> Tree:
        """See `Ops.for_layers`."""
        if self._layers == self._dtype:
            return params
        return {name: parameter.to(self._layers) for name, parameter in params.items()}

    def flat(self, obs: Tensor) -> Tensor:
        """See `Ops.flat`."""
        return obs.to(self._layers)

    def images(self, obs: Tensor) -> Tensor:
        """See `Ops.images`; a `[B, C, H, W]` view of channels-last memory, the fastest layout for convolutions."""
        return obs.to(self._layers).permute(0, 3, 1, 2)

    def flattened(self, x: Tensor) -> Tensor:
        """See `Ops.flattened`."""
        return x.permute(0, 2, 3, 1).flatten(1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor, activation: Activation | None) -> Tensor:
        """See `Ops.linear`."""
        return self.activate(activation, F.linear(x, weight, bias))

    def recur(
        self, cell: CellName, projected: Tensor, start: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Tensor
    ) -> Tensor:
        """See `Ops.recur`; one custom operator (`torch_recurrence.py`)."""
        return recur(cell, projected, start.to(self._layers), torch.stack(state), weight, bias)

    def convolve(self, layer: Conv, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `Ops.convolve`."""
        y = F.conv2d(x, weight.permute(0, 3, 1, 2), bias, layer.stride, layer.padding)
        return self.activate(layer.activation, y)

    def spread(self, layer: Spread, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `Ops.spread`."""
        y = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(3, 0, 1, 2), bias, layer.stride)
        return self.activate(layer.activation, y.permute(0, 2, 3, 1))

    def max_pool(self, x: Tensor) -> Tensor:
        """See `Ops.max_pool`."""
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)

    def standardised(self, x: Tensor) -> Tensor:
        """See `Ops.standardised`."""
        return F.layer_norm(x, x.shape[-1:], eps=EPSILON)

    def activate(self, activation: Activation | None, x: Tensor) -> Tensor:
        """See `Ops.activate`."""
        return _ACTIVATIONS[activation](x) if activation else x

    def relu(self, x: Tensor) -> Tensor:
        """See `Ops.relu`."""
        return F.relu(x)

    def full(self, x: Tensor) -> Tensor:
        """See `Ops.full`."""
        return x.to(self._dtype)
