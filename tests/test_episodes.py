"""Episode returns and lengths, against numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.runners.base import Episode
from ppo_bench.runners.episodes import EpisodeTotals, accumulate_episodes, zero_totals


def fold(
    totals: EpisodeTotals, rewards: list[list[float]], over: list[list[int]], value_mask: list[list[int]] | None = None
) -> tuple[EpisodeTotals, list[Episode]]:
    """`accumulate_episodes` of lists; every step is real unless said otherwise."""
    flags = np.ones_like(over, bool) if value_mask is None else np.array(value_mask, bool)
    return accumulate_episodes(totals, np.array(rewards, np.float32), np.array(over, bool), flags)


def test_an_episode_spans_two_rollouts() -> None:
    totals, _ = fold(zero_totals(2), [[1, 10], [2, 20]], [[0, 0], [0, 0]])
    totals, episodes = fold(totals, [[4, 40], [8, 80]], [[1, 0], [0, 0]], [[1, 1], [0, 1]])
    assert episodes == [Episode(step=2, env=0, episode_return=7.0, length=3)]
    assert_array_equal(totals.returns, [0, 150])  # 8 is the reward of a reset step
    assert_array_equal(totals.lengths, [0, 4])


def test_a_lost_life_does_not_end_an_episode() -> None:
    # A life is lost at step 1: step 2 is a reset step, and the episode is over at step 4 only.
    rewards: list[list[float]] = [[1], [2], [64], [4], [8]]
    totals, episodes = fold(zero_totals(1), rewards, [[0], [0], [0], [0], [1]], [[1], [1], [0], [1], [1]])
    assert episodes == [Episode(5, 0, 15.0, 4)]
    assert_array_equal(totals.lengths, [0])


def test_episodes_are_in_the_order_of_their_ends_and_count_steps_of_all_environments() -> None:
    rewards: list[list[float]] = [[1, 10, 100], [2, 20, 200], [4, 40, 400]]
    over = [[0, 0, 1], [1, 1, 0], [0, 0, 1]]
    value_mask = [[1, 1, 1], [1, 1, 0], [0, 0, 1]]
    totals, episodes = fold(zero_totals(3), rewards, over, value_mask)
    assert episodes == [
        Episode(step=3, env=2, episode_return=100.0, length=1),
        Episode(step=6, env=0, episode_return=3.0, length=2),
        Episode(step=6, env=1, episode_return=30.0, length=2),
        Episode(step=9, env=2, episode_return=400.0, length=1),
    ]
    assert_array_equal(totals.returns, [0, 0, 0])


def test_returns_are_added_in_double_precision() -> None:
    # In float32 2^24 + 1 is 2^24.
    _, episodes = fold(zero_totals(1), [[2.0**24], [1], [1]], [[0], [0], [1]])
    assert episodes[0].episode_return == 2.0**24 + 2


def test_an_episode_has_the_numbers_that_its_last_step_told() -> None:
    episode_info = {"won": np.array([[0.5, 7.0], [8.0, np.nan]]), "speed": np.array([[3.0, 9.0], [9.0, 4.0]])}
    episode_info["distance"] = np.array([[np.inf, 0.0], [0.0, 2.0]])  # as of a goal that is out of sight
    over, value_mask = np.array([[True, False], [False, True]]), np.ones((2, 2), bool)
    _, episodes = accumulate_episodes(zero_totals(2), np.ones((2, 2)), over, value_mask, episode_info)
    assert [(each.env, dict(each.info)) for each in episodes] == [
        (0, {"won": 0.5, "speed": 3.0}),
        (1, {"speed": 4.0, "distance": 2.0}),
    ]


@pytest.mark.parametrize("num_envs", [1, 130])
def test_narrow_and_wide_rollouts_are_folded_as_step_by_step(num_envs: int) -> None:
    rng = np.random.default_rng(num_envs)
    totals, returns, lengths = zero_totals(num_envs), [0.0] * num_envs, [0] * num_envs
    for _ in range(2):
        rewards = rng.integers(-3, 9, (40, num_envs)).astype(np.float32)
        over, value_mask = rng.random((40, num_envs)) < 0.2, rng.random((40, num_envs)) < 0.9
        expected = []
        for t, env in np.ndindex(over.shape):
            if value_mask[t, env]:
                returns[env] += float(rewards[t, env])
                lengths[env] += 1
                if over[t, env]:
                    expected.append(Episode((t + 1) * num_envs, env, returns[env], lengths[env]))
                    returns[env], lengths[env] = 0.0, 0
        totals, episodes = accumulate_episodes(totals, rewards, over, value_mask)
        assert episodes == expected
        assert_array_equal(totals.returns, returns)
        assert_array_equal(totals.lengths, lengths)
