"""What surrounds host environments: normalisation, clipping and the mask of reset steps, on a scripted environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench import noise, normalize
from ppo_bench.envs.base import Step
from ppo_bench.runners.base import Arrays, Episode
from ppo_bench.runners.rollout import HostEnvs, RolloutState
from tests.runners import problem_for

GAMMA = 0.5
WILD = 1000.0
"""What only a masked observation or reward may hold."""


class Script:
    """Two environments that show the rows of a script, whatever the actions; row 0 is that of the reset."""

    def __init__(
        self,
        obs: Sequence[Sequence[float]],
        rewards: Sequence[Sequence[float]] = (),
        terminated: Sequence[Sequence[int]] = (),
        truncated: Sequence[Sequence[int]] = (),
        lost_lives: Sequence[Sequence[int]] = (),
    ) -> None:
        self.num_envs = 2
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space: spaces.Discrete | spaces.Box = spaces.Discrete(2)
        self.obs = np.array(obs, np.float32)[..., None]
        rows = (len(obs), 2)
        self.rewards = np.array(rewards or np.zeros(rows), np.float32)
        self.terminated, self.truncated, self.lost_lives = (
            np.array(flags or np.zeros(rows), bool) for flags in (terminated, truncated, lost_lives)
        )
        self.seeds: list[list[int]] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self.seeds.append(list(seeds))
        self.row = 0
        return self.obs[0]

    def step(self, actions: np.ndarray) -> Step:
        self.actions.append(actions.copy())
        self.row += 1
        row = self.row
        over = (self.terminated[row] | self.truncated[row]) & ~self.lost_lives[row]
        # What is learnt from is a tenth of the game's own reward, so that the two cannot be mistaken.
        return Step(
            self.obs[row],
            self.rewards[row] / 10,
            self.terminated[row],
            self.truncated[row],
            over,
            self.rewards[row],
        )

    def close(self) -> None:
        pass


def host(env: Script, num_steps: int, norm_obs: bool = False, norm_reward: bool = False) -> HostEnvs:
    overrides = ["ppo.num_minibatches=1", "ppo.obs_clip=10", "ppo.reward_clip=10", f"ppo.gamma={GAMMA}"]
    switches = [f"ppo.num_steps={num_steps}", f"ppo.norm_obs={norm_obs}", f"ppo.norm_reward={norm_reward}"]
    problem = problem_for(env, 1, [*overrides, *switches])
    return HostEnvs(problem.env, problem.network, problem.ppo)


def idle(t: int, obs: np.ndarray) -> np.ndarray:
    return np.zeros(2, int)


def watch(seen: list[np.ndarray]) -> Callable[[int, np.ndarray], np.ndarray]:
    """An `act` that notes its observations."""

    def act(t: int, obs: np.ndarray) -> np.ndarray:
        seen.append(obs.copy())
        return np.zeros(2, int)

    return act


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
    seen: list[np.ndarray] = []
    state, rollout = envs.collect(envs.start(1, 0), watch(seen))
    assert_array_equal(seen, [[[1], [2]], [[3], [4]]])
    assert_array_equal(state.obs, [[5], [6]])
    assert_array_equal(rollout.rewards, [[1, 2], [3, 4]])
    assert rollout.rewards.dtype == np.float32
    assert rollout.real.all()


def test_actions_are_asked_for_step_by_step_and_given_to_the_environments() -> None:
    env = Script(obs=[[0, 0]] * 4)
    envs = host(env, 3)
    envs.collect(envs.start(1, 0), lambda t, obs: np.array([t, 10 * t]))
    assert_array_equal(env.actions, [[0, 0], [1, 10], [2, 20]])


def test_the_first_observation_is_normalised_too() -> None:
    envs = host(Script(obs=[[1, 5]]), 1, norm_obs=True)
    state = envs.start(1, 0)
    assert_allclose(state.obs, [[normalized(1, [1, 5])], [normalized(5, [1, 5])]], rtol=1e-6)


def test_observations_are_normalised_by_all_that_were_seen_so_far() -> None:
    envs = host(Script(obs=[[1, 5], [2, 2], [9, 3]]), 2, norm_obs=True)
    seen: list[np.ndarray] = []
    state, _ = envs.collect(envs.start(1, 0), watch(seen))
    rows = [[1.0, 5.0], [1.0, 5.0, 2.0, 2.0], [1.0, 5.0, 2.0, 2.0, 9.0, 3.0]]
    assert_allclose(seen[0][:, 0], [normalized(1, rows[0]), normalized(5, rows[0])], rtol=1e-6)
    assert_allclose(seen[1][:, 0], [normalized(2, rows[1]), normalized(2, rows[1])], rtol=1e-6)
    assert_allclose(state.obs[:, 0], [normalized(9, rows[2]), normalized(3, rows[2])], rtol=1e-6)


def test_normalised_observations_are_clipped() -> None:
    envs = host(Script(obs=[[0, 0]] * 999 + [[1, WILD]]), 999, norm_obs=True)
    state, _ = envs.collect(envs.start(1, 0), idle)
    assert state.obs.max() == 10


def test_statistics_learn_only_observations_on_which_the_policy_acts() -> None:
    # The final observations, WILD, are shown to the critic alone: the action that follows them is ignored.
    env = Script(obs=[[1, 5], [WILD, 2], [3, WILD], [4, 6]], terminated=[[0, 0], [1, 0], [0, 0], [0, 0]])
    env.truncated[2, 1] = True
    envs = host(env, 3, norm_obs=True)
    state, _ = envs.collect(envs.start(1, 0), idle)
    mean, var = statistics([1, 5, 2, 3, 4, 6])
    assert_allclose(state.obs_stats.mean, [mean], rtol=1e-10)
    assert_allclose(state.obs_stats.var, [var], rtol=1e-10)
    assert_allclose(state.obs_stats.count, 6 + normalize.INITIAL_COUNT)


def scaled(reward: float, discounted: Sequence[float]) -> float:
    return reward / np.sqrt(statistics(discounted)[1] + normalize.EPSILON)


def test_rewards_are_scaled_by_the_discounted_returns_of_gamma() -> None:
    envs = host(Script(obs=[[0, 0]] * 3, rewards=[[0, 0], [10, 20], [30, -40]]), 2, norm_reward=True)
    state, rollout = envs.collect(envs.start(1, 0), idle)
    # Learnt from: 1 and 2, then 3 and -4. With gamma = 1/2 the returns go on to 3 + 1/2 and -4 + 2/2.
    assert_array_equal(state.discounted_returns, [3.5, -3])
    first, second = [1.0, 2.0], [1.0, 2.0, 3.5, -3.0]
    assert_allclose(rollout.rewards[0], [scaled(1, first), scaled(2, first)], rtol=1e-6)
    assert_allclose(rollout.rewards[1], [scaled(3, second), scaled(-4, second)], rtol=1e-6)
    assert rollout.rewards.dtype == np.float32


def test_discounted_returns_restart_at_episodes_and_learn_nothing_at_reset_steps() -> None:
    env = Script(
        obs=[[0, 0]] * 4,
        rewards=[[0, 0], [10, 20], [0, 40], [30, 80]],
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0]],
    )
    envs = host(env, 3, norm_reward=True)
    state, rollout = envs.collect(envs.start(1, 0), idle)
    # First environment: 1, a reset, 3. Second: 2, 4 + 2/2, 8 + 5/2.
    assert_array_equal(state.discounted_returns, [3, 10.5])
    mean, var = statistics([1, 2, 5, 3, 10.5])
    assert_allclose(state.return_stats, [mean, var, 5 + normalize.INITIAL_COUNT], rtol=1e-10)
    assert rollout.rewards[1, 0] == 0


def test_rewards_of_a_rollout_are_those_of_normalising_step_by_step() -> None:
    """As a program does whose environments are in it, over two rollouts."""
    rng = np.random.default_rng(4)
    rows, ends = rng.normal(0.0, 20.0, (41, 2)), rng.random((41, 2)) < 0.2
    ends[1:] &= ~ends[:-1]
    env = Script(obs=[[0, 0]] * 41, rewards=rows.tolist(), terminated=ends.tolist())
    envs = host(env, 20, norm_reward=True)
    state = envs.start(1, 0)
    stats, returns, done = state.return_stats, np.zeros(2), np.zeros(2, bool)
    for half in range(2):
        state, rollout = envs.collect(state, idle)
        for t in range(20):
            row = 20 * half + t + 1
            reward, mask = env.rewards[row] / 10, (~done).astype(float)
            stats, returns, expected = normalize.reward(np, stats, returns, reward, mask, GAMMA, clip=10.0)
            assert_allclose(rollout.rewards[t], expected, rtol=1e-6)
            done = env.terminated[row]
    assert_allclose(state.return_stats, stats, rtol=1e-14)
    assert_allclose(state.discounted_returns, returns, rtol=1e-14)


def test_normalised_rewards_are_clipped() -> None:
    rewards = [[0.0, 0.0]] * 999 + [[0.0, -10 * WILD]]
    envs = host(Script(obs=[[0, 0]] * 1000, rewards=rewards), 999, norm_reward=True)
    _, rollout = envs.collect(envs.start(1, 0), idle)
    assert rollout.rewards[-1, 1] == -10


def test_episodes_report_the_games_own_rewards_over_two_rollouts() -> None:
    env = Script(
        obs=[[0, 0]] * 5,
        rewards=[[0, 0], [10, 20], [30, 40], [50, 0], [70, 80]],
        terminated=[[0, 0], [0, 0], [0, 1], [0, 0], [1, 0]],
        truncated=[[0, 0], [0, 0], [0, 0], [0, 0], [0, 1]],
        lost_lives=[[0, 0], [0, 0], [0, 0], [0, 0], [1, 0]],
    )
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, first = envs.collect(envs.start(1, 0), idle)
    state, second = envs.collect(state, idle)
    assert first.episodes == [Episode(step=4, env=1, episode_return=60.0, length=2)]
    assert second.episodes == [Episode(step=4, env=1, episode_return=80.0, length=1)]  # environment 0 lost a life
    assert_array_equal(state.totals.returns, [160, 0])
    assert_array_equal(state.totals.lengths, [4, 0])


def test_ends_are_reported_as_they_are_and_the_step_after_them_is_not_real() -> None:
    env = Script(
        obs=[[0, 0]] * 5,
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]],
        truncated=[[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]],
    )
    envs = host(env, 4)
    _, rollout = envs.collect(envs.start(1, 0), idle)
    assert_array_equal(rollout.terminated, [[1, 0], [0, 0], [0, 0], [0, 0]])
    assert_array_equal(rollout.truncated, [[0, 0], [0, 1], [0, 0], [0, 0]])
    assert_array_equal(rollout.real, [[1, 1], [0, 1], [1, 0], [1, 1]])


def test_an_end_on_the_last_step_masks_the_first_step_of_the_next_rollout() -> None:
    env = Script(
        obs=[[1, 1], [2, 2], [WILD, 3], [4, 5], [6, 7]],
        rewards=[[0, 0], [10, 20], [30, 40], [0, 60], [70, 80]],
        terminated=[[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]],
    )
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, first = envs.collect(envs.start(1, 0), idle)
    assert first.real.all()
    assert_array_equal(state.done, [True, False])
    state, second = envs.collect(state, idle)
    assert_array_equal(second.real, [[0, 1], [1, 1]])
    assert_array_equal(state.done, [False, False])
    assert second.rewards[0, 0] == 0
    assert_array_equal(state.totals.returns, [70, 200])
    assert_array_equal(state.discounted_returns, [7, 8 + (6 + (4 + 2 / 2) / 2) / 2])
    assert_allclose(state.obs_stats.mean, [statistics([1, 1, 2, 2, 3, 4, 5, 6, 7])[0]], rtol=1e-10)


def played() -> tuple[Script, HostEnvs, RolloutState]:
    """A state with all that a rollout leaves: statistics, totals, discounted returns, and an end on its last step."""
    env = Script(obs=[[1, 5], [2, 2], [9, 3]], rewards=[[0, 0], [10, 20], [30, 40]])
    env.terminated[2, 0] = True
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, _ = envs.collect(envs.start(1, 0), idle)
    assert_array_equal(state.totals.lengths, [0, 2])
    assert state.discounted_returns.all()
    return env, envs, state


def assert_fresh_with_these_statistics(state: RolloutState, exported: Arrays) -> None:
    """Accumulators are cleared; statistics are the exported ones after the first observations of row 0."""
    assert not state.done.any()
    assert not state.totals.returns.any()
    assert not state.totals.lengths.any()
    assert not state.discounted_returns.any()
    for field, value in zip(normalize.RunningStats._fields, state.return_stats, strict=True):
        assert_array_equal(value, exported[f"normalize.return.{field}"])
    mean, var = statistics([1, 5, 2, 2, 3, 1, 5])  # 9 was a final observation
    assert_allclose(state.obs_stats.mean, [mean], rtol=1e-10)
    assert_allclose(state.obs_stats.var, [var], rtol=1e-10)
    assert_allclose(state.obs_stats.count, 7 + normalize.INITIAL_COUNT)
    assert_allclose(state.obs, (np.array([[1], [5]]) - mean) / np.sqrt(var + normalize.EPSILON), rtol=1e-6)


def test_exported_statistics_are_those_of_the_state() -> None:
    _, envs, state = played()
    arrays = {name: array for name, array in envs.export(state).items() if name.startswith("normalize.")}
    names = [f"normalize.{name}.{field}" for name in ("obs", "return") for field in ("mean", "var", "count")]
    assert list(arrays) == names
    for name, value in zip(names, (*state.obs_stats, *state.return_stats), strict=True):
        assert_array_equal(arrays[name], value)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float64)}


def test_statistics_survive_export_and_restore_while_accumulators_are_cleared() -> None:
    _, envs, state = played()
    exported = envs.export(state)
    _, others, _ = played()
    assert_fresh_with_these_statistics(others.restore(exported, 1, 0), exported)


def test_statistics_survive_a_restart_while_accumulators_are_cleared() -> None:
    _, envs, state = played()
    exported = envs.export(state)
    assert_fresh_with_these_statistics(envs.restart(state, 1, 3), exported)


def test_seeds_follow_from_the_run_and_the_iteration() -> None:
    env, envs, state = played()
    envs.restart(state, 1, 3)
    envs.restore(envs.export(state), 2, 4)
    assert env.seeds == [noise.env_seeds(1, 0, 2), noise.env_seeds(1, 3, 2), noise.env_seeds(2, 4, 2)]


def test_continuous_actions_are_clipped_for_the_environments_alone() -> None:
    env = Script(obs=[[0, 0]] * 2)
    env.action_space = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 3], np.float32))
    envs = host(env, 1)
    actions = np.array([[5, -5], [0.5, 4]], np.float32)
    returned = actions.copy()
    envs.collect(envs.start(1, 0), lambda t, obs: returned)
    assert_array_equal(env.actions, [[[1, -2], [0.5, 3]]])
    assert_array_equal(returned, actions)
