"""Modules of PyTorch as functions of their parameters, which lie in the neutral layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ppo_bench.mathematics.weights import Parameter

Params = Mapping[str, Tensor]

LAYOUTS: dict[type[nn.Module], tuple[int, ...]] = {nn.Conv2d: (0, 3, 1, 2), nn.ConvTranspose2d: (3, 0, 1, 2)}
"""Axes of PyTorch's weights within neutral weights `[outputs, height, width, inputs]`, by the kind of layer."""


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
    """The module that `make` makes, as a function `(params, *inputs)`.

    Its parameters are `parameters` in the same order. The layers of `make` have no values of their own. A dictionary of
    parameters keeps its tensors after a call without gradients; their values may change.
    """

    def __init__(self, make: Callable[[], nn.Module], parameters: Sequence[Parameter]) -> None:
        with torch.device("meta"):
            self._module, self._bound = make(), make()
        self._parameter_slots = _parameter_slots(self._bound, parameters)
        for slot in self._parameter_slots:
            delattr(slot.layer, slot.name)
        for layer in self._bound.modules():  # plain attributes, which `nn.Module.__getattr__` need not look up
            vars(layer).update(layer.named_children())
        self._params: Params | None = None

    def __call__(self, params: Params, *inputs: Any, **options: Any) -> Any:
        """What the module's `forward` returns, computed with `params`."""
        if torch.compiler.is_compiling():
            own = {slot.path: slot.view_of(params) for slot in self._parameter_slots}
            return torch.func.functional_call(self._module, own, inputs, options)
        # `functional_call` takes 60 microseconds. Here the same parameters are set once for all steps of a rollout, as
        # plain attributes, whose access is faster than that of an `nn.Parameter`.
        with_gradients = torch.is_grad_enabled()
        if with_gradients or self._params is not params:
            for slot in self._parameter_slots:
                vars(slot.layer)[slot.name] = slot.view_of(params)
            self._params = None if with_gradients else params
        return self._bound.forward(*inputs, **options)


def _parameter_slots(module: nn.Module, parameters: Sequence[Parameter]) -> list[_ParameterSlot]:
    found: list[_ParameterSlot] = []
    neutral = {parameter.name: parameter for parameter in parameters}
    layers = dict(module.named_modules())
    for (path, own), name in zip(module.named_parameters(), neutral, strict=True):
        above, _, last = path.rpartition(".")
        layer = layers[above]
        axes = next((axes for kind, axes in LAYOUTS.items() if isinstance(layer, kind) and last == "weight"), None)
        shape = neutral[name].shape
        if tuple(own.shape) != (tuple(shape[axis] for axis in axes) if axes and len(shape) == len(axes) else shape):
            raise ValueError(f"{path} of {type(module).__name__} has shape {tuple(own.shape)}, and {name} {shape}")
        found.append(_ParameterSlot(layer, last, path, name, axes))
    return found
