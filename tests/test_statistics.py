"""The report's statistics against values computed by hand, published ones, and scipy's."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

from ppo_bench.commands.report.published import scale_of
from ppo_bench.commands.report.statistics import (
    Array,
    bootstrap,
    iqm,
    mean,
    mean_band,
    mean_interval,
    probability_of_improvement,
    ratio_of_means,
    tost,
)

SPR = {
    "Alien": 801.5, "Amidar": 176.3, "Assault": 571.0, "Asterix": 977.8, "BankHeist": 380.9,
    "BattleZone": 16651.0, "Boxing": 35.8, "Breakout": 17.1, "ChopperCommand": 974.8,
    "CrazyClimber": 42923.6, "DemonAttack": 545.2, "Freeway": 24.4, "Frostbite": 1821.5, "Gopher": 715.2,
    "Hero": 7019.2, "Jamesbond": 365.4, "Kangaroo": 3276.4, "Krull": 3688.9, "KungFuMaster": 13192.7,
    "MsPacman": 1313.2, "Pong": -5.9, "PrivateEye": 124.0, "Qbert": 669.1, "RoadRunner": 14220.5,
    "Seaquest": 583.1, "UpNDown": 28138.5,
}  # fmt: skip
"""Scores on Atari 100k. The paper reports a human-normalised mean of 0.704, and more than a human's in 7 games
(Schwarzer et al. 2021, arXiv 2007.05929)."""


def array(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def test_published_scores_have_their_published_aggregates() -> None:
    scores = []
    for game, score in SPR.items():
        scale = scale_of(f"ALE/{game}-v5")
        assert scale is not None
        assert scale.high is not None
        scores.append(array((score - scale.low) / (scale.high - scale.low)))
    assert len(scores) == 26
    assert abs(float(mean(scores)) - 0.704) < 1e-3
    assert sum(float(score[0]) > 1 for score in scores) == 7


@pytest.mark.parametrize(
    ("statistic", "scores", "expected"),
    [
        (mean, [array(1, 2, 6), array(4, 4)], 3.5),  # means 3 and 4
        (iqm, [array(8, 1, 2, 7, 3, 6, 4, 5)], 4.5),  # of 3, 4, 5, 6
        (iqm, [array(100, 2, 1, 3, -50)], 2.0),  # of 1, 2, 3
        (iqm, [array(1, 2, 30)], 11.0),  # nothing to leave out
        (iqm, [array(1, 9), array(2, 4)], 3.0),  # of 2, 4
    ],
)
def test_aggregates_by_hand(statistic: Callable[..., Array], scores: list[Array], expected: float) -> None:
    assert abs(float(statistic(scores)) - expected) < 1e-12


def test_probability_of_improvement_by_hand() -> None:
    ours, theirs = [array(1, 2, 3)], [array(2, 2, 4)]
    assert abs(float(probability_of_improvement(ours, theirs)) - 3 / 9) < 1e-12  # two ties and two wins of nine
    assert abs(float(probability_of_improvement([*ours, array(5)], [*theirs, array(1, 2)])) - (1 / 3 + 1) / 2) < 1e-12
    same = [array(500, 500, 500)]
    assert float(probability_of_improvement(same, same)) == 0.5


def scipys(samples: list[Array], statistic: Callable[..., Any]) -> tuple[float, float]:
    found = scipy.stats.bootstrap(
        samples, statistic, n_resamples=40_000, method="percentile", vectorized=True, paired=False,
        rng=np.random.default_rng(5), batch=5_000,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


TASKS = [np.random.default_rng(k).gamma(3.0, k + 1.0, size=9 + k) for k in range(3)]


@pytest.mark.parametrize(
    ("ours", "theirs", "samples"),
    [
        (mean, lambda x, axis: x.mean(axis), TASKS[:1]),
        (iqm, lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis), TASKS[:1]),
        (mean, lambda x, y, z, axis: (x.mean(axis) + y.mean(axis) + z.mean(axis)) / 3, TASKS),
        (iqm, lambda x, y, z, axis: scipy.stats.trim_mean(np.concatenate([x, y, z], axis), 0.25, axis), TASKS),
    ],
    ids=["mean", "iqm", "mean of three", "iqm of three"],
)
def test_intervals_agree_with_scipys_bootstrap(
    ours: Callable[..., Array], theirs: Callable[..., Any], samples: list[Array]
) -> None:
    found = bootstrap(ours, samples, seed=1, resamples=40_000)
    low, high = scipys(samples, theirs)
    assert abs(found.low - low) < 0.03 * (high - low)
    assert abs(found.high - high) < 0.03 * (high - low)


def test_intervals_of_two_samples_agree_with_scipys_bootstrap() -> None:
    x, y = TASKS[1], TASKS[2]
    found = bootstrap(ratio_of_means, [x], [y], seed=1, resamples=40_000)
    assert abs(found.point - x.mean() / y.mean()) < 1e-12
    low, high = scipys([x, y], lambda a, b, axis: a.mean(axis) / b.mean(axis))
    assert abs(found.low - low) < 0.03 * (high - low)
    assert abs(found.high - high) < 0.03 * (high - low)


def test_bands_are_pointwise_bootstrap_intervals() -> None:
    curves = np.random.default_rng(2).normal(size=(7, 5)).cumsum(1)
    middle, low, high = mean_band(curves, resamples=20_000)
    np.testing.assert_allclose(middle, curves.mean(0), atol=1e-12)
    for k in range(5):
        point = bootstrap(mean, [curves[:, k]], seed=9, resamples=20_000)
        width = point.high - point.low
        assert abs(low[k] - point.low) < 0.04 * width
        assert abs(high[k] - point.high) < 0.04 * width


def test_the_band_of_many_runs_takes_little_memory() -> None:
    tracemalloc.start()
    mean_band(np.zeros((1_000, 10)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6


def test_bands_are_where_all_runs_are() -> None:
    nan = math.nan
    middle, low, high = mean_band(np.array([[nan, 1.0, 1, 1], [3, 3, 3, nan], [5, 5, 8, nan]]))
    np.testing.assert_array_equal(middle, [nan, 3.0, 4.0, nan])
    assert np.isnan(low[[0, 3]]).all()
    assert 1 <= low[2] < high[2] <= 8


def test_intervals_of_a_mean_are_students() -> None:
    """Of 1, 2, 3: 2 and 4.3027 (t of 2 degrees at 97.5%, in any table) standard errors of 1/sqrt(3)."""
    found = mean_interval(array(1, 2, 3))
    assert found.point == 2.0
    assert abs(found.high - 2.0 - 4.302653 / math.sqrt(3)) < 1e-6
    assert abs(2.0 - found.low - 4.302653 / math.sqrt(3)) < 1e-6
    sample = np.random.default_rng(9).normal(50, 7, 11)
    low, high = scipy.stats.ttest_1samp(sample, 0.0).confidence_interval(0.95)
    found = mean_interval(sample)
    assert abs(found.low - low) + abs(found.high - high) < 1e-9
    assert mean_interval(array(4, 4, 4)) == (4.0, 4.0, 4.0, 3)
    alone = mean_interval(array(4))
    assert alone.point == 4.0
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_tost_agrees_with_scipys_one_sided_tests() -> None:
    rng = np.random.default_rng(7)
    verdicts = set()
    for _ in range(60):
        x, y = rng.normal(0, 1, rng.integers(3, 12)), rng.normal(rng.uniform(0, 1.5), rng.uniform(0.2, 2), 6)
        found = tost(x, y, 1.0)
        above = scipy.stats.ttest_ind(x + 1.0, y, equal_var=False, alternative="greater").pvalue
        below = scipy.stats.ttest_ind(x - 1.0, y, equal_var=False, alternative="less").pvalue
        assert abs(found.p_equivalent - max(above, below)) < 1e-10
        assert abs(found.p_different - scipy.stats.ttest_ind(x, y, equal_var=False).pvalue) < 1e-10
        assert (found.p_equivalent < 0.05) == (found.low > -1.0 and found.high < 1.0)
        verdicts.add(found.verdict)
    assert verdicts >= {"equivalent", "different", "undecided"}


def test_tost_of_pairs_agrees_with_scipys() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        x = rng.normal(0, 3, 6)
        y = x + rng.normal(0.3, 0.5, 6)
        found = tost(x, y, 1.0, paired=True)
        above = scipy.stats.ttest_rel(x + 1.0, y, alternative="greater").pvalue
        below = scipy.stats.ttest_rel(x - 1.0, y, alternative="less").pvalue
        assert abs(found.p_equivalent - max(above, below)) < 1e-10
        assert abs(found.p_different - scipy.stats.ttest_rel(x, y).pvalue) < 1e-10
        assert (found.p_equivalent < 0.05) == (found.low > -1.0 and found.high < 1.0)


def test_runs_without_spread_are_equivalent_if_they_are_within_the_margin() -> None:
    full = array(500, 500, 500)
    assert tost(full, full, 25.0).verdict == "equivalent"
    assert tost(full, full - 20, 25.0).verdict == "equivalent, though different"
    assert tost(full, full - 30, 25.0).verdict == "different"
    assert tost(full, full, 0.0).verdict == "equivalent"


@pytest.mark.parametrize("paired", [False, True])
def test_rounding_makes_no_difference_between_equal_returns(paired: bool) -> None:
    """Three returns that are equal but for the last digit are no sample from which a test could learn anything."""
    ours = np.array([475.1, 475.1, 475.1])
    found = tost(np.nextafter(ours, 500.0), ours, 22.6, paired=paired)
    assert found.verdict == "equivalent"
    assert (found.p_different, found.p_equivalent) == (1.0, 0.0)
