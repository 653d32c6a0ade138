"""Episode returns and lengths, against a loop over steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.runners.base import Episode
from ppo_bench.runners.episodes import accumulate_episodes, zero_totals


def test_returns_are_added_in_double_precision() -> None:
    # In float32 2^24 + 1 is 2^24.
    rewards, over = np.array([[2.0**24], [1], [1]], np.float32), np.array([[False], [False], [True]])
    _, episodes = accumulate_episodes(zero_totals(1), rewards, over, np.ones((3, 1), bool))
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
