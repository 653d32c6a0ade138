"""PyTorch implementation of the operations (`Ops`, ppo_bench/networks/ops.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.normalize import Moments, pool_moments
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.ops import PortableModule, ScanStep

Params = dict[str, Tensor]


def parameter_views(flat: Tensor, parameters: Sequence[Parameter]) -> Params:
    """Views of the vector `flat [P]`, by parameter name; it holds all `parameters` in their order.

    With a single vector, the gradient's norm and Adam's step are single operations, whatever the number of layers.
    """
    parts = flat.split([math.prod(parameter.shape) for parameter in parameters])
    return {p.name: part.view(p.shape) for p, part in zip(parameters, parts, strict=True)}


class ProcessGroup(Protocol):
    """The processes that share a training, each with a device of its own."""

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over the processes, the same bits in each."""

    def all_gather(self, x: Tensor) -> Tensor:
        """`x` of every process, stacked in their order."""


class TorchOps:
    """`Ops` in PyTorch, with parameters of dtype `dtype` and modules that compute in the dtype `layers`."""

    xp: Any = torch

    def __init__(self, dtype: torch.dtype, layers: torch.dtype, process_group: ProcessGroup | None = None) -> None:
        """`process_group` joins the processes of the training; None for a process alone."""
        self._dtype, self._layers, self._process_group = dtype, layers, process_group
        self._functions: dict[PortableModule, Callable[..., Any]] = {}

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """See `Ops.all_reduce_sum`."""
        return self._process_group.all_reduce_sum(x) if self._process_group else x

    def all_reduce_moments(self, batch_moments: Moments) -> Moments:
        """See `Ops.all_reduce_moments`."""
        return (
            pool_moments(torch, batch_moments, self._process_group.all_gather) if self._process_group else batch_moments
        )

    def take(self, x: Tensor, rows: Tensor, axis: int) -> Tensor:
        """See `Ops.take`."""
        return x.index_select(axis, rows)

    def take_windows(self, x: Tensor, rows: Tensor, steps: int, stride: int) -> Tensor:
        """See `Ops.take_windows`."""
        indices = rows[:, None] + stride * torch.arange(steps, dtype=rows.dtype, device=rows.device)
        return x.index_select(0, indices.view(-1)).view(*indices.shape, *x.shape[1:])

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

    def to_layer_dtype(self, params: Tree) -> Tree:
        """See `Ops.to_layer_dtype`."""
        if self._layers == self._dtype:
            return params
        return {name: parameter.to(self._layers) for name, parameter in params.items()}

    def call(self, module: PortableModule, params: Tree, *inputs: Any, **options: Any) -> Any:
        """See `Ops.call`."""
        return self.function(module)(params, *inputs, **options)

    def function(self, module: PortableModule) -> Callable[..., Any]:
        """The function of `module`. The first call, which constructs it, cannot be compiled by `torch.compile`."""
        function = self._functions.get(module)
        if function is None:
            function = self._functions[module] = module.torch_function()
        return function

    def cast_obs(self, obs: Tensor) -> Tensor:
        """See `Ops.cast_obs`."""
        return _cast(obs, self._layers)

    def to_param_dtype(self, x: Tensor) -> Tensor:
        """See `Ops.to_param_dtype`."""
        return _cast(x, self._dtype)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in `dtype`. `Tensor.to` takes a microsecond even where nothing changes, 2% of a step of CartPole's policy."""
    return x if x.dtype == dtype else x.to(dtype)
