"""`Ops` (ppo_bench/networks/ops.py) in PyTorch, and modules as functions of their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.normalize import Moments, pool_moments
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.ops import PortableModule, ScanStep

Params = dict[str, Tensor]
CONVOLUTION_AXES = (0, 3, 1, 2)
"""Axes of PyTorch's weights of a convolution within neutral weights `[outputs, height, width, inputs]`."""


def parameter_views(flat: Tensor, parameters: Sequence[Parameter]) -> Params:
    """Views of the vector `flat [P]`, by parameter name; it holds all `parameters` in their order.

    With a single vector, the gradient's norm and Adam's step are single operations, whatever the number of layers.
    """
    parts = flat.split([math.prod(parameter.shape) for parameter in parameters])
    return {p.name: part.view(p.shape) for p, part in zip(parameters, parts, strict=True)}


class TorchOps:
    """`Ops` in PyTorch, with parameters of dtype `dtype` and modules that compute in the dtype `layers`."""

    xp: Any = torch
    scan_backwards = staticmethod(ppo.scan_backwards)

    def __init__(self, dtype: torch.dtype, layers: torch.dtype, process_group: Any = None) -> None:
        """`process_group`, a `TorchProcessGroup`, joins the processes of the training; None for a process alone."""
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

    def to_layer_dtype(self, params: Tree) -> Tree:
        """See `Ops.to_layer_dtype`."""
        if self._layers == self._dtype:
            return params
        return {name: parameter.to(self._layers) for name, parameter in params.items()}

    def call(self, module: PortableModule, params: Tree, *inputs: Any) -> Any:
        """See `Ops.call`."""
        return self.function(module)(params, *inputs)

    def function(self, module: PortableModule) -> Callable[..., Any]:
        """The function of `module`: a `FunctionalModule`, unless the module is a user's (ppo_bench/networks/own.py).

        The first call, which constructs it, cannot be compiled by `torch.compile`.
        """
        function = self._functions.get(module)
        if function is None:
            function = self._functions[module] = module.function("torch")
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


class _ParameterSlot(NamedTuple):
    """Where a parameter belongs."""

    layer: nn.Module
    name: str
    path: str
    neutral: str
    axes: tuple[int, ...] | None

    def view_of(self, params: Params) -> Tensor:
        """A view of the parameter in PyTorch's layout."""
        return params[self.neutral] if self.axes is None else params[self.neutral].permute(self.axes)


class FunctionalModule:
    """A module of the class `cls`, as a function `(params, *inputs)`.

    Its parameters are `parameters` in the same order. Its layers have no values of their own. A dictionary of
    parameters keeps its tensors after a call without gradients; their values may change.
    """

    def __init__(self, cls: type[nn.Module], options: Mapping[str, Any], parameters: Sequence[Parameter]) -> None:
        with torch.device("meta"):
            self._module, self._bound = cls(**options), cls(**options)
        self._parameter_slots = _parameter_slots(self._bound, parameters)
        for slot in self._parameter_slots:
            delattr(slot.layer, slot.name)
        for layer in self._bound.modules():  # plain attributes, which `nn.Module.__getattr__` need not look up
            vars(layer).update(layer.named_children())
        self._params: Params | None = None

    def __call__(self, params: Params, *inputs: Any) -> Any:
        """What the module's `forward` returns, computed with `params`."""
        if torch.compiler.is_compiling():
            own = {slot.path: slot.view_of(params) for slot in self._parameter_slots}
            return torch.func.functional_call(self._module, own, inputs)
        # `functional_call` takes 60 microseconds. Here the same parameters are set once for all steps of a rollout, as
        # plain attributes, whose access is faster than that of an `nn.Parameter`.
        with_gradients = torch.is_grad_enabled()
        if with_gradients or self._params is not params:
            for slot in self._parameter_slots:
                vars(slot.layer)[slot.name] = slot.view_of(params)
            self._params = None if with_gradients else params
        return self._bound.forward(*inputs)


def _parameter_slots(module: nn.Module, parameters: Sequence[Parameter]) -> list[_ParameterSlot]:
    found: list[_ParameterSlot] = []
    layers = dict(module.named_modules())
    for (path, _), parameter in zip(module.named_parameters(), parameters, strict=True):
        above, _, last = path.rpartition(".")
        layer = layers[above]
        axes = CONVOLUTION_AXES if isinstance(layer, nn.Conv2d) and last == "weight" else None
        found.append(_ParameterSlot(layer, last, path, parameter.name, axes))
    return found
