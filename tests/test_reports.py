"""Metrics and episodes of several runs that one JAX program trains, against numbers by hand."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.errors import FailedRuns
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.runners.base import Episode, TrainingSpec
from ppo_bench.runners.episodes import EpisodeTotals
from ppo_bench.runners.program import RolloutRewards
from ppo_bench.runners.program_runner import PendingIteration, collect_reports
from tests.runners import problem_for

REWARDS: list[list[list[float]]] = [[[1, 10], [2, 20], [4, 40]], [[100, 0.5], [200, 0.25], [400, 0.125]]]
OVER = [[[0, 0], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0]]]
VALID = [[[1, 1], [1, 1], [0, 1]], [[1, 1], [1, 1], [1, 1]]]


@pytest.fixture(scope="module")
def spec() -> TrainingSpec:
    return problem_for(DynamicsEnv(CartPole(), 2), 10, ["ppo.num_envs=2"])


def iteration(spec: TrainingSpec, rewards: list[list[list[float]]]) -> PendingIteration:
    """Results of two runs of two environments in three steps, and of one more run that is padding."""
    rows = (np.array([*each, each[-1]]).swapaxes(1, 2) for each in (rewards, OVER, VALID))
    types = np.float32, bool, bool
    played = RolloutRewards(*(array.astype(dtype) for array, dtype in zip(rows, types, strict=True)))  # type: ignore[arg-type]
    names = {metric.name for metric in metrics_of(spec.algorithm)}
    measured = {name: np.array([1, 2, 3], np.float32) for name in names - {"learning_rate", "masked_fraction"}}
    return played, measured  # type: ignore[return-value]


def test_every_run_has_its_own_episodes_metrics_and_totals(spec: TrainingSpec) -> None:
    before = EpisodeTotals(np.array([1000.0, 0, 0, 0]), np.array([7, 0, 0, 0]))
    totals, (first, second) = collect_reports(spec, [0.5, 0.25], iteration(spec, REWARDS), before)
    assert first[1] == [Episode(4, 0, 1003.0, 9), Episode(6, 1, 70.0, 3)]
    assert second[1] == [Episode(2, 0, 100.0, 1), Episode(4, 1, 0.75, 2), Episode(6, 0, 600.0, 2)]
    assert_array_equal(totals.returns, [0, 0, 0, 0.125])
    assert_array_equal(totals.lengths, [0, 0, 0, 1])
    assert [metrics["learning_rate"] for metrics, _ in (first, second)] == [0.5, 0.25]
    assert [metrics["entropy"] for metrics, _ in (first, second)] == [1.0, 2.0]
    assert first[0]["masked_fraction"] == pytest.approx(1 / 6)
    assert second[0]["masked_fraction"] == 0.0
    assert all(isinstance(value, float) for metrics, _ in (first, second) for value in metrics.values())


def test_a_reward_that_is_no_number_fails_its_run_alone(spec: TrainingSpec) -> None:
    rewards: list[list[list[float]]] = [REWARDS[0], [[1, 1], [1, float("inf")], [1, 1]]]
    with pytest.raises(FailedRuns) as caught:
        collect_reports(spec, [0.5, 0.5], iteration(spec, rewards), EpisodeTotals(np.zeros(4), np.zeros(4, np.int64)))
    assert caught.value.reasons == {1: "environment 1 gave a reward of inf, which is not finite"}
    elsewhere = pickle.loads(pickle.dumps(caught.value))  # a process of several reports it to the first
    assert (str(elsewhere), elsewhere.reasons) == (str(caught.value), caught.value.reasons)
