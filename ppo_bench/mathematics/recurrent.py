"""Recurrent cells over any of NumPy, PyTorch and JAX: a step, and its gradients.

A cell takes what is projected from its input and from its hidden state, `[B, G]` each, G being as many units for each
gate. Gates lie in the order of `torch.nn.LSTM` and `torch.nn.GRU`, so that weights carry over. Sources: Hochreiter and
Schmidhuber 1997 with the forget gate of Gers et al. 2000; Cho et al. 2014 with the reset gate after the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Array = Any  # an array of whichever namespace `xp` is
State = tuple[Array, ...]
"""Arrays `[B, H]`; the first is the hidden state, which the cell shows."""


class Gradients(NamedTuple):
    """Gradients of a step."""

    projected: Array
    """`[B, G]`, of what is projected from the input."""
    recurrent: Array
    """`[B, G]`, of what is projected from the hidden state."""
    state: State
    """Of the state before, but for what goes by `recurrent`."""


class Cell(NamedTuple):
    """A recurrent cell."""

    gates: int
    states: tuple[str, ...]
    """Names of the arrays of its state."""
    step: Callable[[Any, Array, Array, State], tuple[State, State]]
    """`(xp, projected, recurrent, state) -> (state, saved)`; `saved`, `[B, H]` each, is for the gradients."""
    slopes: Callable[[Any, State, State, State], State]
    """`(xp, state before, state after, saved) -> slopes`, of any number of steps at once: all that gradients need and
    that does not depend on later steps."""
    backward: Callable[[Any, State, State], Gradients]
    """`(xp, gradients of the state after, slopes) -> Gradients`, of a step."""


def sigmoid(xp: Any, x: Array) -> Array:
    """The logistic function; NumPy and JAX have no name of their own for it."""
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
    shown = xp.tanh(after[1])
    gates = (g * i * (1 - i), before[1] * f * (1 - f), i * (1 - g * g), shown * o * (1 - o))
    return o * (1 - shown * shown), f, xp.concatenate(gates, -1)


def _lstm_backward(xp: Any, gradients: State, slopes: State) -> Gradients:
    (hidden, cell), (shown, forget, gates) = gradients, slopes
    cell = cell + hidden * shown
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
