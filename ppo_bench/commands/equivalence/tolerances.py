"""What counts as the same, by `precision`."""

from __future__ import annotations

from typing import NamedTuple


class Tolerance(NamedTuple):
    """Of one precision."""

    parameters: float
    """Relative distance of all parameters after an iteration from the same state."""
    movement: float
    """The same distance relative to what the iteration changed, which late in annealing is little."""
    rounding: float
    """Relative distance of all parameters that storing them may make: below it, `movement` says nothing."""
    losses: float
    """Difference of losses and gradient norms, means over an iteration's minibatches. They amplify rounding more than
    parameters do: advantages are differences of values, and normalised however small they are."""
    actions: float
    """Continuous actions closer than this are the same; discrete ones must be equal."""
    ties: float
    """Two choices whose scores are closer than this, relative to them, tie: rounding may choose either."""


TOLERANCES = {
    "float64": Tolerance(1e-10, movement=1e-6, rounding=1e-14, losses=1e-9, actions=1e-9, ties=1e-12),
    "float32": Tolerance(1e-4, movement=5e-2, rounding=1e-6, losses=1e-2, actions=1e-4, ties=1e-5),
    "tf32": Tolerance(1e-2, movement=0.2, rounding=1e-4, losses=1e-1, actions=1e-2, ties=1e-2),
    "bfloat16": Tolerance(1e-1, movement=0.5, rounding=1e-3, losses=1.0, actions=1e-1, ties=5e-2),
}
