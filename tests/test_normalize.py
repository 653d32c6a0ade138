"""Running normalisation against NumPy on the concatenated batches, gymnasium's statistics and numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.normalize import RunningStats
from ppo_bench.runners.host_envs import FastNumpy
from tests.namespaces import Namespace

WILD = 1e6  # what masked entries hold

SHAPES = pytest.mark.parametrize("shape", [(), (3,), (2, 2)], ids=str)


def initial(shape: tuple[int, ...]) -> RunningStats:
    return RunningStats(np.zeros(shape), np.ones(shape), np.array(1e-4))


def batches(shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ten batches of 6 rows far from mean 0 and variance 1, and their masks; one mask is all 1 and one all 0."""
    rng = np.random.default_rng(1)
    masks = (rng.random((10, 6)) < 0.7).astype(np.float64)
    masks[2], masks[5] = 1.0, 0.0
    return [(rng.normal(5.0, 3.0, (6, *shape)), mask) for mask in masks]


def learn(ns: Namespace, sequence: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...]) -> RunningStats:
    stats = initial(shape)
    for batch, mask in sequence:
        stats = ns.run(normalize.update_stats, stats, batch, mask)
    return stats


@SHAPES
def test_statistics_match_gymnasium(ns: Namespace, shape: tuple[int, ...]) -> None:
    sequence = batches(shape)
    theirs = RunningMeanStd(shape=shape)
    for batch, mask in sequence:
        if mask.any():
            theirs.update(batch[mask == 1])
    ours = learn(ns, sequence, shape)
    assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
    assert_allclose(ours.var, theirs.var, rtol=1e-12)
    assert_allclose(ours.count, theirs.count, rtol=1e-14)


def test_an_entirely_masked_batch_changes_no_statistics(ns: Namespace) -> None:
    stats = RunningStats(np.array([2.0, -1.0]), np.array([3.0, 0.5]), np.array(7.0))
    after = ns.run(normalize.update_stats, stats, np.full((4, 2), WILD), np.zeros(4))
    assert_allclose(after.mean, [2.0, -1.0], rtol=1e-15)
    assert_allclose(after.var, [3.0, 0.5], rtol=1e-15)
    assert after.count == 7.0


def test_statistics_by_hand(ns: Namespace) -> None:
    # Two entries of mean 1 and variance 1, then 4 and 6: entries 0, 2, 4, 6 have mean 3 and variance 20 / 4.
    stats = RunningStats(np.array(1.0), np.array(1.0), np.array(2.0))
    after = ns.run(normalize.update_stats, stats, [4, WILD, 6], [1, 0, 1])
    assert_allclose(after, [3.0, 5.0, 4.0], rtol=1e-15)


def test_observations_by_hand(ns: Namespace) -> None:
    stats = RunningStats(np.array([1.0, 2.0]), np.array([4.0, 0.25]), np.array(10.0))
    observations = np.array([[3.0, 2.0], [-3.0, 1.0], [100.0, -100.0]])
    normalized = ns.run(normalize.normalize_observations, stats, observations, 10.0)
    assert_allclose(normalized, [[1, 0], [-2, -2], [10, -10]], rtol=1e-7)


def test_discounted_returns_by_hand_over_a_reset(ns: Namespace) -> None:
    rewards = np.array([[1, 8], [2, WILD], [WILD, 4], [4, 2]])
    mask = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], np.float64)
    returns, history = np.zeros(2), []
    for row, keep in zip(rewards, mask, strict=True):
        returns = ns.run(lambda _, *x: normalize.update_discounted_returns(*x), returns, row, keep, 0.5)
        history.append(returns)
    # First environment: 1, 2 + 1/2, reset, 4. Second: 8, reset, 4, 2 + 4/2.
    assert_array_equal(history, [[1, 8], [2.5, 0], [0, 4], [4, 4]])


def test_rewards_by_hand_are_scaled_but_not_centred(ns: Namespace) -> None:
    stats = RunningStats(np.array(100.0), np.array(4.0), np.array(10.0))
    normalized = ns.run(normalize.normalize_rewards, stats, [3, 0, -1, 50, -50], 10.0)
    assert_allclose(normalized, [1.5, 0, -0.5, 10, -10], rtol=1e-8)


@pytest.mark.parametrize("num_envs", [1, 8, 200])
def test_numpy_without_its_wrappers_gives_the_same_bits(num_envs: int) -> None:
    rng = np.random.default_rng(2)
    start = (initial((11,)), initial(()), np.zeros(num_envs))
    before: dict[Any, tuple[Any, ...]] = dict.fromkeys((np, FastNumpy), start)
    for _ in range(20):
        obs, rewards = 9.0 * rng.standard_cauchy((num_envs, 11)), rng.normal(size=num_envs).astype(np.float32)
        mask = (rng.random(num_envs) < 0.8).astype(np.float64)
        seen = []
        for xp, state in list(before.items()):
            obs_stats = normalize.update_stats(xp, state[0], obs)
            returns = normalize.update_discounted_returns(state[2], rewards, mask, 0.99)
            return_stats = normalize.update_stats(xp, state[1], returns, mask)
            before[xp] = obs_stats, return_stats, returns
            observed = normalize.normalize_observations(xp, obs_stats, obs, 10.0)
            rewarded = normalize.normalize_rewards(xp, return_stats, rewards, 10.0)
            seen.append((*obs_stats, *return_stats, returns, observed, rewarded))
        for expected, found in zip(*seen, strict=True):
            assert_array_equal(expected, found, strict=True)
