"""Framework-independent descriptions of the layers of networks: parameters, sizes and order of operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.mathematics.weights import Parameter

Activation = Literal["tanh", "relu", "leaky_relu", "elu", "gelu", "silu"]

HIDDEN_GAIN = math.sqrt(2.0)  # gain of the orthogonal initialisation of hidden layers (details, 2)


def weight_and_bias(
    name: str, shape: tuple[int, ...], gain: float | None, uniform_bias: bool
) -> tuple[Parameter, Parameter]:
    """Weight `[outputs, ..., inputs]` and bias `[outputs]` of the layer `name`.

    The weight is orthogonal with `gain`, or uniform if that is None. The bias is 0, or uniform with `uniform_bias`.
    Uniform ones are those of PyTorch's linear layers and convolutions: bounded by the inverse root of the fan-in.
    """
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return (
        Parameter(f"{name}.weight", shape, gain, bound=bound if gain is None else None),
        Parameter(f"{name}.bias", shape[:1], None, bound=bound if uniform_bias else None),
    )


def normalisation(name: str, size: int) -> tuple[Parameter, Parameter]:
    """Scale and shift of the layer normalisation `name`, for `normalised` of ppo_bench/networks/ops.py."""
    return Parameter(f"{name}.weight", (size,), None, 1.0), Parameter(f"{name}.bias", (size,), None)


@dataclass(frozen=True)
class Linear:
    """A linear layer on inputs `[B, inputs]`, followed by `activation`."""

    name: str
    inputs: int
    outputs: int
    gain: float | None
    """See `weight_and_bias`, as for `uniform_bias`."""
    activation: Activation | None = None
    residual: bool = False
    """Whether the layer adds its input to its output."""
    normalised: bool = False
    """Whether its sums are standardised, scaled and shifted before `activation` (layer normalisation, Ba et al.
    2016)."""
    uniform_bias: bool = False

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout; those of the normalisation, if there is one."""
        norm = normalisation(f"{self.name}.norm", self.outputs) if self.normalised else ()
        return *weight_and_bias(self.name, (self.outputs, self.inputs), self.gain, self.uniform_bias), *norm


@dataclass(frozen=True)
class Conv:
    """A convolution with a square kernel on channels-last images, with `padding` zeros on each side, followed by
    `activation`; its output is channels last too."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int = 0
    gain: float | None = HIDDEN_GAIN
    """See `weight_and_bias`, as for `uniform_bias`."""
    activation: Activation | None = "relu"
    uniform_bias: bool = False

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout."""
        shape = (self.outputs, self.kernel, self.kernel, self.inputs)
        return weight_and_bias(self.name, shape, self.gain, self.uniform_bias)

    def output_size(self, size: int) -> int:
        """Height or width of the output in pixels, from that of the input."""
        return (size + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class MaxPool:
    """Max pooling with a 3 x 3 window, stride 2 and padding 1.

    The gradient goes to the maximum; if pixels are equal, to the first of them in row-major order.
    """

    def parameters(self) -> tuple[Parameter, ...]:
        """An empty tuple: the layer has no parameters."""
        return ()

    def output_size(self, size: int) -> int:
        """Height or width of the output in pixels, from that of the input."""
        return (size + 1) // 2


@dataclass(frozen=True)
class Residual:
    """A residual block, `x + second(first(relu(x)))`, followed by `activation` (He et al. 2016).

    Both convolutions keep height and width.
    """

    first: Conv
    second: Conv
    activation: Activation | None = None

    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of both convolutions."""
        return (*self.first.parameters(), *self.second.parameters())

    def output_size(self, size: int) -> int:
        """Height or width of the output in pixels: that of the input."""
        return size


@dataclass(frozen=True)
class Spread:
    """A transposed convolution on channels-last images, unpadded, followed by `activation` (Zeiler et al. 2010)."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    activation: Activation | None = "relu"

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias, in the neutral layout."""
        return weight_and_bias(self.name, (self.outputs, self.kernel, self.kernel, self.inputs), HIDDEN_GAIN, False)


ImageLayer = Conv | MaxPool | Residual


CellName = Literal["lstm", "gru"]


@dataclass(frozen=True)
class Recurrence:
    """A recurrent cell with `units` hidden units on inputs `[B, inputs]`; `cell` is a key of
    `ppo_bench.mathematics.recurrent.CELLS`."""

    name: str
    cell: CellName
    inputs: int
    units: int

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias of the input's and of the hidden state's projection, named and laid out as in
        `torch.nn.LSTM`."""
        gates = CELLS[self.cell].gates * self.units
        return (
            Parameter(f"{self.name}.weight_ih", (gates, self.inputs), 1.0),
            Parameter(f"{self.name}.weight_hh", (gates, self.units), 1.0),
            Parameter(f"{self.name}.bias_ih", (gates,), None),
            Parameter(f"{self.name}.bias_hh", (gates,), None),
        )
