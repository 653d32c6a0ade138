"""Processing around host environments: normalisation, clipping and the flags of steps, on a scripted environment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics import normalize
from ppo_bench.runners.base import Episode
from tests.scripted import Script, begun, collect, host, idle, watch


def statistics(rows: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of `rows` beside the prior: mean 0, variance 1, weight 1e-4."""
    values = np.array(rows)
    count = len(rows) + normalize.INITIAL_COUNT
    mean = values.sum() / count
    return mean, (np.square(values).sum() + normalize.INITIAL_COUNT) / count - mean**2


def normalized(value: float, rows: Sequence[float]) -> float:
    mean, var = statistics(rows)
    return (value - mean) / np.sqrt(var + normalize.EPSILON)


def test_without_normalisation_everything_passes_unchanged() -> None:
    env = Script(obs=[[1, 2], [3, 4], [5, 6]], rewards=[[0, 0], [10, 20], [30, 40]])
    envs = host(env, 2)
    policy_inputs: list[PolicyInput] = []
    state, flags, _ = collect(envs, begun(envs), watch(policy_inputs))
    assert_array_equal([one.obs for one in policy_inputs], [[[1], [2]], [[3], [4]]])
    assert_array_equal(state["envs.obs"], [[5], [6]])
    assert_array_equal(flags["rewards"], [[1, 2], [3, 4]])
    assert flags["rewards"].dtype == np.float32
    assert flags["value_mask"].all()


def test_observations_are_normalised_by_all_that_were_seen_so_far() -> None:
    envs = host(Script(obs=[[1, 5], [2, 2], [9, 3]]), 2, norm_obs=True)
    policy_inputs: list[PolicyInput] = []
    state, _, _ = collect(envs, begun(envs), watch(policy_inputs))
    rows = [[1.0, 5.0], [1.0, 5.0, 2.0, 2.0], [1.0, 5.0, 2.0, 2.0, 9.0, 3.0]]
    assert_allclose(policy_inputs[0].obs[:, 0], [normalized(1, rows[0]), normalized(5, rows[0])], rtol=1e-6)
    assert_allclose(policy_inputs[1].obs[:, 0], [normalized(2, rows[1]), normalized(2, rows[1])], rtol=1e-6)
    assert_allclose(state["envs.obs"][:, 0], [normalized(9, rows[2]), normalized(3, rows[2])], rtol=1e-6)


def scaled(reward: float, discounted: Sequence[float]) -> float:
    return reward / np.sqrt(statistics(discounted)[1] + normalize.EPSILON)


def test_rewards_are_scaled_by_the_discounted_returns_of_gamma() -> None:
    envs = host(Script(obs=[[0, 0]] * 3, rewards=[[0, 0], [10, 20], [30, -40]]), 2, norm_reward=True)
    state, flags, _ = collect(envs, begun(envs), idle)
    # Learnt from: 1 and 2, then 3 and -4. With gamma = 1/2 the returns go on to 3 + 1/2 and -4 + 2/2.
    assert_array_equal(state["envs.discounted_returns"], [3.5, -3])
    first, second = [1.0, 2.0], [1.0, 2.0, 3.5, -3.0]
    assert_allclose(flags["rewards"][0], [scaled(1, first), scaled(2, first)], rtol=1e-6)
    assert_allclose(flags["rewards"][1], [scaled(3, second), scaled(-4, second)], rtol=1e-6)
    assert flags["rewards"].dtype == np.float32


def test_discounted_returns_restart_at_episodes_and_learn_nothing_at_reset_steps() -> None:
    env = Script(
        obs=[[0, 0]] * 4,
        rewards=[[0, 0], [10, 20], [0, 40], [30, 80]],
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0]],
    )
    envs = host(env, 3, norm_reward=True)
    state, flags, _ = collect(envs, begun(envs), idle)
    # First environment: 1, a reset, 3. Second: 2, 4 + 2/2, 8 + 5/2.
    assert_array_equal(state["envs.discounted_returns"], [3, 10.5])
    mean, var = statistics([1, 2, 5, 3, 10.5])
    assert_allclose(
        normalize.select_stats(state, "normalize.return"), [mean, var, 5 + normalize.INITIAL_COUNT], rtol=1e-10
    )
    assert flags["rewards"][1, 0] == 0


def test_episodes_report_the_games_own_rewards_over_two_rollouts() -> None:
    env = Script(
        obs=[[0, 0]] * 5,
        rewards=[[0, 0], [10, 20], [30, 40], [50, 0], [70, 80]],
        terminated=[[0, 0], [0, 0], [0, 1], [0, 0], [1, 0]],
        truncated=[[0, 0], [0, 0], [0, 0], [0, 0], [0, 1]],
        lost_lives=[[0, 0], [0, 0], [0, 0], [0, 0], [1, 0]],
    )
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, _, first = collect(envs, begun(envs), idle)
    state, _, second = collect(envs, state, idle)
    assert first == [Episode(step=4, env=1, episode_return=60.0, length=2)]
    assert second == [Episode(step=4, env=1, episode_return=80.0, length=1)]  # environment 0 lost a life
    assert_array_equal(state["envs.returns"], [160, 0])
    assert_array_equal(state["envs.lengths"], [4, 0])


def test_ends_are_reported_as_they_are_and_the_step_after_them_is_not_real() -> None:
    env = Script(
        obs=[[0, 0]] * 5,
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]],
        truncated=[[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]],
    )
    envs = host(env, 4)
    _, flags, _ = collect(envs, begun(envs), idle)
    assert_array_equal(flags["terminated"], [[1, 0], [0, 0], [0, 0], [0, 0]])
    assert_array_equal(flags["truncated"], [[0, 0], [0, 1], [0, 0], [0, 0]])
    assert_array_equal(flags["value_mask"], [[1, 1], [0, 1], [1, 0], [1, 1]])
    assert_array_equal(flags["policy_mask"], flags["value_mask"])  # where nothing else is said
    assert {
        flags[name].dtype for name in ("terminated", "truncated", "value_mask", "policy_mask", "episode_start")
    } == {np.dtype(bool)}


def test_an_end_on_the_last_step_masks_the_first_step_of_the_next_rollout() -> None:
    env = Script(
        obs=[[1, 1], [2, 2], [9, 3], [4, 5], [6, 7]],
        rewards=[[0, 0], [10, 20], [30, 40], [0, 60], [70, 80]],
        terminated=[[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]],
    )
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, first, _ = collect(envs, begun(envs), idle)
    assert first["value_mask"].all()
    assert_array_equal(state["envs.done"], [True, False])
    state, second, _ = collect(envs, state, idle)
    assert_array_equal(second["value_mask"], [[0, 1], [1, 1]])
    assert_array_equal(state["envs.done"], [False, False])
    assert second["rewards"][0, 0] == 0
    assert_array_equal(state["envs.returns"], [70, 200])
    assert_array_equal(state["envs.discounted_returns"], [7, 8 + (6 + (4 + 2 / 2) / 2) / 2])
    assert_allclose(
        normalize.select_stats(state, "normalize.obs").mean, [statistics([1, 1, 2, 2, 9, 3, 4, 5, 6, 7])[0]], rtol=1e-10
    )


def test_a_memory_begins_anew_after_every_reset_step_over_two_rollouts() -> None:
    env = Script(
        obs=[[0, 0]] * 7,
        terminated=[[0, 0], [0, 0], [1, 0], [0, 0], [0, 0], [0, 0], [0, 0]],
        truncated=[[0, 0], [0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0]],
        lost_lives=[[0, 0], [0, 0], [1, 0], [0, 0], [0, 0], [0, 0], [0, 0]],  # their steps reset as any other
    )
    envs = host(env, 3)
    policy_inputs: list[PolicyInput] = []
    state, first, _ = collect(envs, begun(envs), watch(policy_inputs))
    assert_array_equal(first["value_mask"], [[1, 1], [1, 1], [0, 1]])
    assert_array_equal(first["episode_start"], [[1, 1], [0, 0], [0, 0]])
    assert_array_equal(state["envs.episode_start"], [True, False])
    state, second, _ = collect(envs, envs.export(state), watch(policy_inputs))
    assert_array_equal(second["value_mask"], [[1, 0], [1, 1], [1, 1]])
    assert_array_equal(second["episode_start"], [[1, 0], [0, 1], [0, 0]])
    assert_array_equal(state["envs.episode_start"], [False, False])
    assert_array_equal(
        [one.episode_start for one in policy_inputs], [*first["episode_start"], *second["episode_start"]]
    )  # what the policy is told


def test_actions_count_as_was_said_before_their_step_and_never_at_resets_over_two_rollouts() -> None:
    env = Script(
        obs=[[0, 0]] * 7,
        terminated=[[0, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]],
        truncated=[[0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [1, 0], [0, 0]],
        policy_mask=[
            [0, 0],
            [0, 1],
            [1, 0],
            [0, 1],
            [1, 1],
            [1, 0],
            [0, 1],
        ],  # the first row is a reset's, which says nothing
    )
    envs = host(env, 3)
    state, first, _ = collect(envs, begun(envs), idle)
    assert_array_equal(first["value_mask"], [[1, 1], [1, 0], [1, 1]])
    assert_array_equal(first["policy_mask"], [[1, 1], [0, 0], [1, 0]])
    assert_array_equal(state["envs.policy_mask"], [False, True])
    state, second, _ = collect(envs, envs.export(state), idle)
    assert_array_equal(second["value_mask"], [[1, 1], [1, 1], [0, 1]])
    assert_array_equal(second["policy_mask"], [[0, 1], [1, 1], [0, 0]])
    assert_array_equal(state["envs.policy_mask"], [False, True])


def test_continuous_actions_are_clipped_for_the_environments_alone() -> None:
    env = Script(obs=[[0, 0]] * 2)
    env.action_space = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 3], np.float32))
    envs = host(env, 1)
    actions = np.array([[5, -5], [0.5, 4]], np.float32)
    returned = actions.copy()
    collect(envs, begun(envs), lambda t, policy_input: returned)
    assert_array_equal(env.actions, [[[1, -2], [0.5, 3]]])
    assert_array_equal(returned, actions)
