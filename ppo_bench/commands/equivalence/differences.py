"""Differences between one framework's iteration and the leader's, and the tolerances that they are held to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.envs.base import EnvStep
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Metrics


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


class IterationOutcome(NamedTuple):
    """Actions, state and metrics of one framework's iteration."""

    actions: np.ndarray
    """Actions, `[T, N]` or `[T, N, A]`."""
    before: Arrays
    """The state before the iteration; leaders only."""
    after: Arrays
    metrics: Metrics
    steps: EnvStep | None
    """The environments' steps, `[T, N, ...]`; leaders only."""


class Difference(NamedTuple):
    """Differences between one framework's iteration and the leader's."""

    actions: int
    """Number of actions that differ; ties are not counted."""
    parameters: float
    """Norm of the difference of all parameters, relative to their norm."""
    movement: float
    """Norm of the same difference, relative to the norm of the leader's parameter change in the iteration."""
    losses: float
    """The largest difference of a loss, relative where the loss is above 1."""
    gradient_norm: float
    """Relative difference of the gradient norms."""
    tied: bool = False
    """Whether an action depended on rounding, so that the two iterations learnt from different transitions."""

    def within(self, tolerance: Tolerance) -> bool:
        """Whether parameters, losses and gradient norm are within `tolerance`; actions are not checked."""
        moved = self.movement <= tolerance.movement or self.parameters <= tolerance.rounding
        measured = max(self.losses, self.gradient_norm)
        return moved and self.parameters <= tolerance.parameters and measured <= tolerance.losses


def compare(
    leader: IterationOutcome, other: IterationOutcome, action_tolerance: float, losses: Sequence[str]
) -> Difference:
    """Differences of `other` from `leader` in one iteration; `losses` names the metrics that are compared."""
    distances = [_relative_difference(leader.metrics[name], other.metrics[name], 1.0) for name in losses]
    norms = leader.metrics["gradient_norm"], other.metrics["gradient_norm"]
    return Difference(
        actions=int(differing_actions(leader, other, action_tolerance).sum()),
        parameters=distance(leader.after, other.after),
        movement=movement_distance(leader.before, leader.after, other.after),
        losses=max(distances, default=0.0),
        gradient_norm=_relative_difference(*norms, float(np.finfo(np.float64).tiny)),
    )


def differing_actions(leader: IterationOutcome, other: IterationOutcome, tolerance: float) -> np.ndarray:
    """Actions that differ, `[T, N]` bool."""
    discrete = leader.actions.dtype.kind in "iu"
    gaps = np.abs(leader.actions.astype(np.float64) - other.actions)
    same = gaps <= (0.0 if discrete else tolerance)  # never of a NaN
    return ~same.reshape(*gaps.shape[:2], -1).all(-1)


def distance(mine: Arrays, theirs: Arrays, prefix: str = "params.") -> float:
    """Norm of the difference of all arrays with a prefix, parameters by default, relative to their norm."""
    a, b = (_vector(arrays, prefix) for arrays in (mine, theirs))
    return float(np.linalg.norm(b - a) / np.linalg.norm(a))


def movement_distance(before: Arrays, mine: Arrays, theirs: Arrays) -> float:
    """Norm of the difference of all parameters, relative to that of their change since `before`; 0 if both are 0."""
    start, a, b = (_vector(arrays, "params.") for arrays in (before, mine, theirs))
    apart, moved = np.linalg.norm(b - a), np.linalg.norm(a - start)
    return float(apart / moved) if moved > 0 else (math.inf if apart > 0 else 0.0)


def _vector(arrays: Arrays, prefix: str) -> np.ndarray:
    """All arrays with a prefix as one float64 vector, in the order of their names."""
    names = sorted(name for name in arrays if name.startswith(prefix))
    return np.concatenate([arrays[name].ravel().astype(np.float64) for name in names])


def _relative_difference(mine: float, theirs: float, least: float) -> float:
    """Difference relative to the larger of |`mine`| and `least`. For non-finite numbers: 0 if equal, else infinity."""
    if math.isfinite(mine) and math.isfinite(theirs):
        return abs(theirs - mine) / max(abs(mine), least)
    return 0.0 if str(mine) == str(theirs) else math.inf
