"""The layers that networks are made of, apart from any framework: their parameters, sizes and order of operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.mathematics.weights import Parameter

Activation = Literal["tanh", "relu", "leaky_relu"]

HIDDEN_GAIN = math.sqrt(2.0)  # of orthogonal weights: details, 2


@dataclass(frozen=True)
class Linear:
    """A linear layer on a flat input."""

    name: str
    inputs: int
    outputs: int
    gain: float
    activation: Activation | None = None
    residual: bool = False
    """Its input is added to what it makes of it."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout."""
        weight = Parameter(f"{self.name}.weight", (self.outputs, self.inputs), self.gain)
        return weight, Parameter(f"{self.name}.bias", (self.outputs,), None)


@dataclass(frozen=True)
class Conv:
    """A square convolution on channels-last images, `padding` zeros on each side; its output keeps that layout."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int = 0
    gain: float = HIDDEN_GAIN
    activation: Activation | None = "relu"

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout."""
        shape = (self.outputs, self.kernel, self.kernel, self.inputs)
        weight = Parameter(f"{self.name}.weight", shape, self.gain)
        return weight, Parameter(f"{self.name}.bias", (self.outputs,), None)

    def output_size(self, size: int) -> int:
        """Pixels along one side after the layer, from those before it."""
        return (size + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class MaxPool:
    """The largest of each 3 x 3 pixels, at every second row and column; beyond the edges there is nothing.

    Of pixels that are equal the first in reading order takes the gradient.
    """

    def parameters(self) -> tuple[Parameter, ...]:
        """None."""
        return ()

    def output_size(self, size: int) -> int:
        """Pixels along one side after the layer, from those before it."""
        return (size + 1) // 2


@dataclass(frozen=True)
class Residual:
    """`x + second(first(relu(x)))`, of convolutions that keep the size, and then `activation` (He et al. 2016)."""

    first: Conv
    second: Conv
    activation: Activation | None = None

    def parameters(self) -> tuple[Parameter, ...]:
        """Those of both convolutions."""
        return (*self.first.parameters(), *self.second.parameters())

    def output_size(self, size: int) -> int:
        """As many pixels as before."""
        return size


@dataclass(frozen=True)
class Spread:
    """A transposed convolution on channels-last images, without padding, and then `activation` (Zeiler et al. 2010)."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    activation: Activation | None = "relu"

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout."""
        shape = (self.outputs, self.kernel, self.kernel, self.inputs)
        weight = Parameter(f"{self.name}.weight", shape, HIDDEN_GAIN)
        return weight, Parameter(f"{self.name}.bias", (self.outputs,), None)


ImageLayer = Conv | MaxPool | Residual


CellName = Literal["lstm", "gru"]


@dataclass(frozen=True)
class Recurrence:
    """A recurrent cell of `units`, on a flat input: one of `ppo_bench.mathematics.recurrent.CELLS`."""

    name: str
    cell: CellName
    inputs: int
    units: int
    gain: float = 1.0

    def parameters(self) -> tuple[Parameter, ...]:
        """Weights of input and hidden state and a bias of each, named and laid out as those of `torch.nn.LSTM`."""
        gates = CELLS[self.cell].gates * self.units
        return (
            Parameter(f"{self.name}.weight_ih", (gates, self.inputs), self.gain),
            Parameter(f"{self.name}.weight_hh", (gates, self.units), self.gain),
            Parameter(f"{self.name}.bias_ih", (gates,), None),
            Parameter(f"{self.name}.bias_hh", (gates,), None),
        )
