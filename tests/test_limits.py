"""Failures in the last step before a time limit, which EnvPool reports in Atari games."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_bench.envs import envpool
from ppo_bench.envs.base import Atari, EnvStep, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolBackend
from ppo_bench.envs.envpool_xla import EnvPoolXlaBackend
from ppo_bench.envs.host import to_vector_env

LIVES = Atari(episodic_life=True, reward_clip=True)
ACTIONS = np.random.default_rng(0).integers(0, 4, 200)


def breakout(backend: str, limit: int) -> VectorEnv:
    task = Task("breakout", "Breakout-v5", 1, LIVES, kwargs={"max_episode_steps": limit})
    return to_vector_env((EnvPoolXlaBackend if backend == "envpool_xla" else EnvPoolBackend)(backend, 1).make(task))


def played(env: VectorEnv, num_steps: int) -> EnvStep:
    env.reset([5])
    steps = EnvStep.stack([env.step(action).map(np.copy) for action in ACTIONS[:num_steps, None]])
    env.close()
    return steps


@pytest.mark.parametrize("backend", ["envpool", "envpool_xla"])
def test_a_game_that_is_lost_in_the_very_step_of_the_limit_is_lost(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envpool, "ATARI_TASK_OPTIONS", set())  # the limit is the task's otherwise
    free = played(breakout("envpool", 27_000), 200)
    lost = int(np.flatnonzero(free.episode_over[:, 0])[0])
    resets = int((free.terminated[:lost, 0]).sum())  # of lost lives, which are no steps of the game
    limit = lost + 1 - resets
    for of_the_limit, expected in ((limit + 1, (True, False)), (limit, (True, False)), (limit - 1, (False, True))):
        steps = played(breakout(backend, of_the_limit), lost + 1)
        at = lost if of_the_limit >= limit else lost - 1
        assert (bool(steps.terminated[at, 0]), bool(steps.truncated[at, 0])) == expected
        assert steps.episode_over[at, 0]
