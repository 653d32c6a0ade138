"""EnvPool's steps without the dictionaries of its Python wrapper are those with it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.envs.base import Atari, EnvStep, Task
from ppo_bench.envs.envpool import EnvPoolEnv
from ppo_bench.envs.random_play import random_actions

STEPPED = [
    Task("cartpole", "CartPole-v1", 3),
    Task("hopper", "Hopper-v4", 3),
    Task("breakout", "Breakout-v5", 3, Atari(episodic_life=True, reward_clip=True)),
    Task("walker_walk", "WalkerWalk-v1", 3),  # a dictionary of observations
    Task("memory", "MiniGrid-MemoryS7-v0", 3),  # of categories among them
    Task("taxi", "Taxi-v3", 3),  # choices
    Task("maze", "Maze-v0", 3),  # dictionaries within a dictionary
    Task("lunar_lander", "LunarLander-v3", 3),
    Task("bipedal_walker", "BipedalWalker-v3", 3),  # whose action_array_spec lacks the number of environments
]


def assert_same(mine: EnvStep, theirs: EnvStep) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("task", STEPPED, ids=lambda task: task.name)
def test_a_step_is_that_of_the_pool(task: Task) -> None:
    env, theirs, ends = EnvPoolEnv(task, num_threads=1), EnvPoolEnv(task, num_threads=1), 0
    assert_array_equal(env.reset([5, 6, 7]).obs, theirs.reset([5, 6, 7]).obs)
    theirs._core = theirs.pool
    rng = np.random.default_rng(1)
    for _ in range(300):
        actions = random_actions(env, rng)
        step = env.step(actions)
        assert_same(step, theirs.step(actions))
        ends += int((step.terminated | step.truncated).sum())
    assert ends > 0 or task.name in ("walker_walk", "bipedal_walker")  # which last for 1,000 and 1,600 steps
    theirs.close()
    env.close()
