"""Recurrent cells over any of NumPy, PyTorch and JAX: the equations of a step and of its gradients.

A cell takes two linear projections, `[B, G]` each: one of its input and one of its hidden state. G is the number of
gates times the number of units. The gates have the order of `torch.nn.LSTM` and `torch.nn.GRU`, so that weights can be
exchanged with these. Sources: Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; Cho et al. 2014
with the reset gate applied after the matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ppo_bench.mathematics.arrays import Array

State = tuple[Array, ...]
"""Arrays `[B, H]`; the first is the hidden state, which is the cell's output."""


class Gradients(NamedTuple):
    """Gradients of the loss with respect to the inputs of one step."""

    projected: Array
    """Gradient of the input's projection, `[B, G]`."""
    recurrent: Array
    """Gradient of the hidden state's projection, `[B, G]`."""
    state: State
    """Gradient of the previous state, without the part that flows through the hidden state's projection."""


class Cell(NamedTuple):
    """A recurrent cell: its size and the functions of its forward and backward step."""

    gates: int
    """Number of gates; G is this number times the units."""
    states: tuple[str, ...]
    """Names of the arrays of its state."""
    step: Callable[[Any, Array, Array, State], tuple[State, State]]
    """Forward step: `(xp, projected, recurrent, state) -> (state, saved)`; `backward` needs `saved`, `[B, H]` each."""
    slopes: Callable[[Any, State, State, State], State]
    """Local derivatives: `(xp, state before, state after, saved) -> slopes`. They do not depend on later steps, so that
    one call computes them for any number of steps."""
    backward: Callable[[Any, State, State], Gradients]
    """Backward step: `(xp, gradients of the state after, slopes) -> Gradients`."""


def sigmoid(xp: Any, x: Array) -> Array:
    """The logistic function: `xp.sigmoid` where the namespace has it, else the equivalent in `tanh`."""
    return xp.sigmoid(x) if hasattr(xp, "sigmoid") else 0.5 * xp.tanh(0.5 * x) + 0.5


def _split(x: Array, parts: int) -> list[Array]:
    size = x.shape[-1] // parts
    return [x[..., k * size : (k + 1) * size] for k in range(parts)]


def _lstm_step(xp: Any, projected: Array, recurrent: Array, state: State) -> tuple[State, State]:
    _, cell = state
    i, f, g, o = _split(projected + recurrent, 4)
    i, f, g, o = sigmoid(xp, i), sigmoid(xp, f), xp.tanh(g), sigmoid(xp, o)
    cell = f * cell + i * g
    return (o * xp.tanh(cell), cell), (i, f, g, o)


def _lstm_slopes(xp: Any, before: State, after: State, saved: State) -> State:
    i, f, g, o = saved
    squashed = xp.tanh(after[1])
    gates = (g * i * (1 - i), before[1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o))
    return o * (1 - squashed * squashed), f, xp.concatenate(gates, -1)


def _lstm_backward(xp: Any, gradients: State, slopes: State) -> Gradients:
    (hidden, cell), (output, forget, gates) = gradients, slopes
    cell = cell + hidden * output
    gates = gates * xp.concatenate((cell, cell, cell, hidden), -1)
    return Gradients(gates, gates, (xp.zeros_like(hidden), cell * forget))


def _gru_step(xp: Any, projected: Array, recurrent: Array, state: State) -> tuple[State, State]:
    (hidden,) = state
    xr, xz, xn = _split(projected, 3)
    hr, hz, hn = _split(recurrent, 3)
    r, z = sigmoid(xp, xr + hr), sigmoid(xp, xz + hz)
    n = xp.tanh(xn + r * hn)
    return (n + z * (hidden - n),), (r, z, n, hn)


def _gru_slopes(xp: Any, before: State, _: State, saved: State) -> State:
    r, z, n, hn = saved
    new = (1 - z) * (1 - n * n)
    reset, update = new * hn * r * (1 - r), (before[0] - n) * z * (1 - z)
    return z, xp.concatenate((reset, update, new), -1), xp.concatenate((reset, update, new * r), -1)


def _gru_backward(xp: Any, gradients: State, slopes: State) -> Gradients:
    ((hidden,), (keep, projected, recurrent)) = gradients, slopes
    each = xp.concatenate((hidden, hidden, hidden), -1)
    return Gradients(projected * each, recurrent * each, (hidden * keep,))


CELLS = {
    "lstm": Cell(4, ("hidden", "cell"), _lstm_step, _lstm_slopes, _lstm_backward),
    "gru": Cell(3, ("hidden",), _gru_step, _gru_slopes, _gru_backward),
}
