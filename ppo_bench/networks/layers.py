"""Parameters of layers in the neutral layout (ppo_bench/mathematics/weights.py), and how each of them begins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.mathematics.weights import Parameter

HIDDEN_GAIN = math.sqrt(2.0)  # gains of the orthogonal initialisation of hidden layers and outputs (details, 2)
ACTOR_GAIN = 0.01
CRITIC_GAIN = 1.0

Parameters = tuple[Parameter, ...]


def linear(
    name: str, inputs: int, outputs: int, *, gain: float | None = HIDDEN_GAIN, uniform: bool = False
) -> Parameters:
    """Weight `[outputs, inputs]` and bias `[outputs]` of a linear layer; see `weight_and_bias`."""
    return weight_and_bias(name, (outputs, inputs), gain, uniform)


def conv(
    name: str, inputs: int, outputs: int, kernel: int, *, gain: float | None = HIDDEN_GAIN, uniform: bool = False
) -> Parameters:
    """Weight `[outputs, kernel, kernel, inputs]` and bias of a convolution; see `weight_and_bias`."""
    return weight_and_bias(name, (outputs, kernel, kernel, inputs), gain, uniform)


def weight_and_bias(name: str, shape: tuple[int, ...], gain: float | None, uniform: bool) -> Parameters:
    """Weight `[outputs, ..., inputs]` and bias `[outputs]` of the layer `name`.

    The weight is orthogonal with `gain`, or uniform if that is None. The bias is 0, or uniform with `uniform`. Uniform
    ones are those of PyTorch's linear layers and convolutions: bounded by the inverse root of the fan-in.
    """
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return (
        Parameter(f"{name}.weight", shape, gain, bound=bound if gain is None else None),
        Parameter(f"{name}.bias", shape[:1], None, bound=bound if uniform else None),
    )


def actor_critic_heads(units: int, outputs: int, streams: int) -> Parameters:
    """Parameters of one layer each of actor and critic."""
    return (
        *linear("actor.0", units, outputs, gain=ACTOR_GAIN),
        *linear("critic.0", units, streams, gain=CRITIC_GAIN),
    )


def layer_norm(name: str, size: int) -> Parameters:
    """Scale and shift of a layer normalisation."""
    return Parameter(f"{name}.weight", (size,), None, 1.0), Parameter(f"{name}.bias", (size,), None)


def recurrent(name: str, cell: str, inputs: int, units: int) -> Parameters:
    """Parameters of a recurrent cell, a key of `CELLS`, named and laid out as in `torch.nn.LSTM`."""
    gates = CELLS[cell].gates * units
    return (
        Parameter(f"{name}.weight_ih", (gates, inputs), 1.0),
        Parameter(f"{name}.weight_hh", (gates, units), 1.0),
        Parameter(f"{name}.bias_ih", (gates,), None),
        Parameter(f"{name}.bias_hh", (gates,), None),
    )


def hidden_layers(name: str, sizes: Sequence[int], *, normalised: bool = False) -> Parameters:
    """Parameters of linear layers between `sizes` units; with `normalised`, each has a layer normalisation."""
    found: list[Parameter] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        found += linear(f"{name}.{i}", inputs, outputs)
        found += layer_norm(f"{name}.{i}.norm", outputs) if normalised else ()
    return tuple(found)


def mlp(name: str, sizes: Sequence[int], gain: float, *, normalised: bool = False) -> Parameters:
    """Parameters of hidden layers and a last layer with `gain`; see `hidden_layers`."""
    hidden = hidden_layers(name, sizes[:-1], normalised=normalised)
    return (*hidden, *linear(f"{name}.{len(sizes) - 2}", sizes[-2], sizes[-1], gain=gain))
