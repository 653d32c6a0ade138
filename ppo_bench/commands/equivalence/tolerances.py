"""Tolerances within which two frameworks count as the same, by `precision`."""

from __future__ import annotations

from typing import NamedTuple


class Tolerance(NamedTuple):
    """Tolerances of one precision."""

    parameters: float
    """Relative distance of all parameters after one iteration from the same state."""
    movement: float
    """The same distance relative to how far the iteration moved the parameters, which is little late in annealing."""
    rounding: float
    """Relative distance of all parameters due to their storage format alone; below it `movement` does not count."""
    losses: float
    """Difference of losses and gradient norms, averaged over an iteration's minibatches.

    They amplify rounding more than parameters do: advantages are differences of values, and normalised even if tiny.
    """
    actions: float
    """Maximum difference of continuous actions that count as the same; discrete ones must be equal."""
    ties: float
    """Maximum difference of two scores that tie, relative to the scores: rounding may choose either action."""


TOLERANCES = {
    "float64": Tolerance(1e-10, movement=1e-6, rounding=1e-14, losses=1e-9, actions=1e-9, ties=1e-12),
    "float32": Tolerance(1e-4, movement=5e-2, rounding=1e-6, losses=1e-2, actions=1e-4, ties=1e-5),
    "tf32": Tolerance(1e-2, movement=0.2, rounding=1e-4, losses=1e-1, actions=1e-2, ties=1e-2),
    "bfloat16": Tolerance(1e-1, movement=0.5, rounding=1e-3, losses=1.0, actions=1e-1, ties=5e-2),
}
