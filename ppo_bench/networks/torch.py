"""A `NetworkSpec` executed by PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ppo_bench.networks.layers import Activation, Conv, ImageLayer, Linear, MaxPool
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.networks.torch_linear import linear
from ppo_bench.ppo import Head

Params = dict[str, Tensor]
Carry = tuple[()]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh_, "relu": torch.relu_}
"""In place: no layer needs its own sums again, and a large one's memory is passed over once less."""


def named_views(flat: Tensor, spec: NetworkSpec) -> Params:
    """Every parameter by name, as a view of the one vector `flat [P]` that holds them all in the spec's order.

    One vector makes the gradient, its norm and Adam's step single operations, whatever the number of layers.
    """
    parameters = spec.parameters
    parts = flat.split([math.prod(parameter.shape) for parameter in parameters])
    return {p.name: part.view(p.shape) for p, part in zip(parameters, parts, strict=True)}


def apply(
    spec: NetworkSpec, params: Params, obs: Tensor, carry: Carry, start: Tensor | None, layers: torch.dtype
) -> tuple[Head, Tensor, Carry]:
    """The policy's head, values `[B]` and the carry, from observations `[B, ...]` as `spec.arrange` returns them.

    Layers compute in the type `layers`; head and values are of the parameters' type.
    """
    dtype = params["critic.0.bias"].dtype
    log_std = params.get("actor.log_std")  # no layer's: never rounded
    if spec.uint8:
        params = params | {name: params[name] / 255.0 for name in spec.scaled_weights}
    x = obs.to(layers)
    params = {name: parameter.to(layers) for name, parameter in params.items()} if layers != dtype else params
    if spec.convolutions:
        # A channels-last tensor under a channels-first name: the layout in which CPU and GPU convolve fastest.
        x = x.permute(0, 3, 1, 2)
        for layer in spec.convolutions:
            x = _image_layer(layer, params, x)
        x = x.permute(0, 2, 3, 1).flatten(1)
    x = _chain(spec.trunk, params, x)
    output = _chain(spec.actor, params, x).to(dtype)
    values = _chain(spec.critic, params, x).squeeze(-1).to(dtype)
    return ((output,) if log_std is None else (output, log_std)), values, carry


def _image_layer(layer: ImageLayer, params: Params, x: Tensor) -> Tensor:
    if isinstance(layer, MaxPool):
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
    if isinstance(layer, Conv):
        weight = params[f"{layer.name}.weight"].permute(0, 3, 1, 2)
        y = F.conv2d(x, weight, params[f"{layer.name}.bias"], layer.stride, layer.padding)
    else:
        y = x + _image_layer(layer.second, params, _image_layer(layer.first, params, F.relu(x)))
    return _ACTIVATIONS[layer.activation](y) if layer.activation else y


def _chain(layers: tuple[Linear, ...], params: Params, x: Tensor) -> Tensor:
    for layer in layers:
        x = linear(x, params[f"{layer.name}.weight"], params[f"{layer.name}.bias"])
        if layer.activation:
            x = _ACTIVATIONS[layer.activation](x)
    return x
