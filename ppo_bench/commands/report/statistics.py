"""Aggregates, intervals and tests, after Agarwal et al. 2021 ("Deep RL at the Edge of the Statistical Precipice").

Scores are a list with an array for each task; its last axis indexes runs, leading axes index bootstrap resamples.
All random numbers follow from a seed: equal scores and seeds give equal intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Scores = Sequence[Array]
"""An array `[..., N_m]` for each task m with N_m runs."""

RESAMPLES = 2000
ENDS = (2.5, 97.5)
"""Percentiles at the ends of an interval."""


class Estimate(NamedTuple):
    """A point estimate with its 95% interval (for equivalence 90%); its bounds are NaN if a task has a single run."""

    point: float
    low: float
    high: float
    seeds: int = 0
    """Number of runs; with several tasks or groups, the smallest."""


def mean(scores: Scores) -> Array:
    """Mean over tasks of the mean over runs."""
    return np.mean(np.stack([task.mean(-1) for task in scores]), 0)


def iqm(scores: Scores) -> Array:
    """Interquartile mean: the mean over the N runs of all tasks, without the floor(N / 4) lowest and highest ones."""
    from scipy import stats

    return np.asarray(stats.trim_mean(np.concatenate(scores, -1), 0.25, axis=-1))


def probability_of_improvement(ours: Scores, theirs: Scores) -> Array:
    """Mean over tasks of the probability that a run of `ours` scores above one of `theirs`; a tie counts half."""
    from scipy import stats

    tasks = []
    for x, y in zip(ours, theirs, strict=True):
        ranks = stats.rankdata(np.concatenate([x, y], -1), axis=-1)[..., : x.shape[-1]]
        wins = ranks.sum(-1) - x.shape[-1] * (x.shape[-1] + 1) / 2  # Mann and Whitney's U
        tasks.append(wins / (x.shape[-1] * y.shape[-1]))
    return np.mean(np.stack(tasks), 0)


def ratio_of_means(ours: Scores, theirs: Scores) -> Array:
    """Mean of `ours` divided by mean of `theirs`."""
    return mean(ours) / mean(theirs)


def bootstrap(statistic: Callable[..., Array], *groups: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """A statistic of one or more independent groups and its percentile interval by the bootstrap.

    It is stratified: of each task with N runs, N are drawn with replacement.
    """
    point, seeds = float(statistic(*groups)), min(len(task) for group in groups for task in group)
    if seeds < 2:
        return Estimate(point, math.nan, math.nan, seeds)
    rng = np.random.default_rng(seed)
    drawn = ([task[rng.integers(0, len(task), (resamples, len(task)))] for task in group] for group in groups)
    low, high = np.percentile(statistic(*drawn), ENDS)
    return Estimate(point, float(low), float(high), seeds)


def mean_interval(values: Array) -> Estimate:
    """The mean of a sample with Student's interval, which covers more often than the bootstrap's over few seeds."""
    from scipy import stats

    mean, std, n = moments(values)
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n)
    half = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def mean_band(curves: Array, resamples: int = RESAMPLES) -> tuple[Array, Array, Array]:
    """Mean over runs at each point of their curves `[N, K]`, and the ends of its interval by the bootstrap.

    All three are NaN at points at which any run is NaN: neighbouring points would average different runs.
    """
    runs = len(curves)
    drawn = np.random.default_rng(0).integers(0, runs, (resamples, runs)) + runs * np.arange(resamples)[:, None]
    # Number of times that each run is drawn, so that the means are a matrix product.
    weights = np.bincount(drawn.ravel(), minlength=resamples * runs).reshape(resamples, runs)
    complete = np.isfinite(curves).all(0)
    values = np.where(complete, curves, 0.0)
    means = np.where(complete & (runs > 1), weights @ values / runs, np.nan)
    return np.where(complete, values.mean(0), np.nan), *np.percentile(means, ENDS, axis=0)


class Comparison(NamedTuple):
    """A difference of two means with its 90% interval, and the p-values of TOST and of a two-sided t-test."""

    difference: float
    low: float
    high: float
    margin: float
    p_equivalent: float
    p_different: float

    @property
    def verdict(self) -> str:
        """The verdict of both tests at the level of 5%, in words."""
        same, apart = self.p_equivalent < 0.05, self.p_different < 0.05
        if same:
            return "equivalent, though different" if apart else "equivalent"
        return "different" if apart else "undecided"


class SampleMoments(NamedTuple):
    """Mean, standard deviation (denominator n - 1) and size of a sample."""

    mean: float
    std: float
    n: int


def moments(values: Array) -> SampleMoments:
    """The moments of a sample; the standard deviation of a single value is NaN."""
    return SampleMoments(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan, len(values))


def welch(ours: SampleMoments, theirs: SampleMoments) -> tuple[float, float, float]:
    """Difference of the means, its standard error and its degrees of freedom (Welch 1947, Satterthwaite 1946).

    If a sample has one value, the standard deviation of the other is used for both (Student's t-test).
    """
    if min(ours.n, theirs.n) == 1:
        larger = max(ours, theirs, key=lambda sample: sample.n)
        return ours.mean - theirs.mean, larger.std * math.sqrt(1 / ours.n + 1 / theirs.n), larger.n - 1.0
    a, b = ours.std**2 / ours.n, theirs.std**2 / theirs.n
    error = math.sqrt(a + b)
    if not error > 0:
        return ours.mean - theirs.mean, error, math.inf
    dof = (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (theirs.n - 1))
    return ours.mean - theirs.mean, error, dof


def tost(ours: Array, theirs: Array, margin: float, *, paired: bool = False) -> Comparison:
    """Two one-sided t-tests (Schuirmann 1987) of two samples with at least two values each.

    The tests are Welch's, or paired ones if `paired`. If the standard error is zero up to rounding, only the means are
    compared.
    """
    if not paired:
        return tost_of_moments(moments(ours), moments(theirs), margin)
    pairs, size = moments(ours - theirs), float(np.abs([*ours, *theirs]).max())
    return _tost(pairs.mean, pairs.std / math.sqrt(pairs.n), pairs.n - 1.0, margin, size)


def tost_of_moments(ours: SampleMoments, theirs: SampleMoments, margin: float) -> Comparison:
    """Two one-sided Welch tests of two samples whose moments are known."""
    return _tost(*welch(ours, theirs), margin, max(abs(ours.mean), abs(theirs.mean)))


def _tost(difference: float, error: float, dof: float, margin: float, magnitude: float) -> Comparison:
    """Both tests, from a difference of means, its standard error and its degrees of freedom.

    `magnitude` is that of the values, for the tolerance of rounding.
    """
    from scipy import stats

    rounding = 1e-12 * magnitude
    if error <= rounding:
        same = abs(difference) <= margin
        return Comparison(
            difference, difference, difference, margin, float(not same), float(abs(difference) <= rounding)
        )
    p_equivalent = max(float(stats.t.sf((margin + sign * difference) / error, dof)) for sign in (1, -1))
    p_different = 2 * float(stats.t.sf(abs(difference) / error, dof))
    half = float(stats.t.ppf(0.95, dof)) * error
    return Comparison(difference, difference - half, difference + half, margin, p_equivalent, p_different)
