"""CartPole on gymnasium and on EnvPool, whose bounds are known, and inputs that both backends refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Atari, EnvStep, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolBackend, EnvPoolEnv
from ppo_bench.envs.gymnasium import GymnasiumBackend, GymnasiumEnv

CARTPOLE = Task("cartpole", "CartPole-v1", 4)
POSITION_LIMIT, ANGLE_LIMIT = 2.4, 0.2095
START_LIMIT = 0.05

Make = Callable[[Task], VectorEnv]

BACKENDS: dict[str, Make] = {
    "gymnasium-sync": GymnasiumBackend("gymnasium", "sync").make,
    "gymnasium-async": GymnasiumBackend("gymnasium", "async").make,
    "envpool": EnvPoolBackend("envpool", 2).make,
}


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Make:
    """Each backend in turn."""
    return BACKENDS[request.param]


def outside(obs: np.ndarray) -> np.ndarray:
    return (np.abs(obs[:, 0]) > POSITION_LIMIT) | (np.abs(obs[:, 2]) > ANGLE_LIMIT)


def balance(obs: np.ndarray) -> np.ndarray:
    """Actions that hold CartPole's pole for 500 steps, for one observation or several."""
    actions: np.ndarray = (obs @ np.array([0.05, 0.2, 1.0, 1.0]) > 0).astype(np.int64)
    return actions


def fall(obs: np.ndarray) -> np.ndarray:
    """A policy that holds the pole for some 40 steps."""
    return (obs[:, 2] > 0).astype(np.int64)


def play(env: VectorEnv, seeds: list[int], policy: Callable[[np.ndarray], np.ndarray], num_steps: int) -> list[EnvStep]:
    """The first observations as a step without events, then `num_steps` steps; the arrays are copies."""
    obs = env.reset(seeds).obs.copy()
    nothing = np.zeros(env.num_envs, bool)
    steps = [EnvStep(obs, np.zeros(env.num_envs, np.float32), nothing, nothing, nothing, nothing)]
    for _ in range(num_steps):
        steps.append(env.step(policy(steps[-1].obs)).map(np.copy))
    return steps


def assert_same_play(actual: list[EnvStep], expected: list[EnvStep]) -> None:
    for t, (a, b) in enumerate(zip(actual, expected, strict=True)):
        for name in EnvStep._fields:
            assert_array_equal(getattr(a, name), getattr(b, name), f"step {t}, {name}")


def test_an_end_shows_the_final_observation_and_the_next_step_a_fresh_start(make: Make) -> None:
    env = make(CARTPOLE)
    steps = play(env, [1, 2, 3, 4], fall, 200)
    env.close()
    ends = 0
    for before, step in pairwise(steps):
        reset = before.terminated
        assert_array_equal(step.terminated, outside(step.obs))
        assert_array_equal(step.reward, np.where(reset, 0, 1))
        assert_array_equal(step.raw_reward, step.reward)
        assert_array_equal(step.episode_over, step.terminated)
        assert (np.abs(step.obs[reset]) <= START_LIMIT).all()
        assert not (reset & (step.terminated | step.truncated)).any()
        assert not step.truncated.any()
        ends += step.terminated.sum()
    assert ends >= 8


def test_the_time_limit_truncates_and_does_not_terminate(make: Make) -> None:
    env = make(CARTPOLE)
    steps = play(env, [1, 2, 3, 4], balance, 510)
    env.close()
    assert not any(step.terminated.any() for step in steps)
    for t, step in enumerate(steps):
        assert_array_equal(step.truncated, np.full(4, t == 500))
        assert_array_equal(step.episode_over, step.truncated)
    assert not outside(steps[500].obs).any()
    assert (np.abs(steps[500].obs).max(1) > START_LIMIT).all()
    assert (np.abs(steps[501].obs) <= START_LIMIT).all()
    assert_array_equal(steps[501].reward, np.zeros(4))


@pytest.mark.parametrize(
    "task",
    [CARTPOLE, Task("hopper", "Hopper-v4", 4), Task("pong", "Pong-v5", 4, Atari(True, True))],
    ids=lambda task: task.name,
)
def test_the_number_of_threads_does_not_change_the_play(task: Task) -> None:
    one, two = (EnvPoolEnv(task, num_threads) for num_threads in (1, 2))
    assert_same_play(random_play(one), random_play(two))


def random_play(env: VectorEnv) -> list[EnvStep]:
    rng = np.random.default_rng(1)
    space = env.action_space

    def policy(obs: np.ndarray) -> np.ndarray:
        if isinstance(space, spaces.Discrete):
            return rng.integers(0, int(space.n), env.num_envs)
        return rng.uniform(-1.0, 1.0, (env.num_envs, *space.shape)).astype(np.float32)

    steps = play(env, [1, 2, 3, 4], policy, 100)
    env.close()
    return steps


def test_worker_processes_do_not_change_the_play() -> None:
    sync, worker = GymnasiumEnv(CARTPOLE, "sync"), GymnasiumEnv(CARTPOLE, "async")
    assert_same_play(random_play(worker), random_play(sync))


@pytest.mark.parametrize("reward_clip", [True, False])
@pytest.mark.parametrize("backend", ["gymnasium-sync", "envpool"])
def test_rewards_are_clipped_to_their_sign_only_where_the_task_says_so(backend: str, reward_clip: bool) -> None:
    env_id = "MsPacman-v5" if backend == "envpool" else "MsPacmanNoFrameskip-v4"
    env = BACKENDS[backend](Task("ms_pacman", env_id, 4, Atari(episodic_life=False, reward_clip=reward_clip)))
    steps = random_play(env)
    raw = np.stack([step.raw_reward for step in steps])
    assert raw.max() == 10  # a pellet
    assert_array_equal([step.reward for step in steps], np.sign(raw) if reward_clip else raw)


def refusal(make: Make, task: Task) -> str:
    """The message of the `ConfigError`, which must be one line."""
    with pytest.raises(ConfigError) as error:
        make(task)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_unknown_ids_are_refused_with_near_names(make: Make) -> None:
    message = refusal(make, Task("typo", "CartPol-v1", 1))
    assert "CartPol-v1" in message
    assert "did you mean" in message.lower()
    assert "CartPole" in message
