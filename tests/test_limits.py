"""Failures in the last step before a time limit: EnvPool reports some of them, and `check` counts the others."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from ppo_bench.commands.check import main
from ppo_bench.envs import envpool_options
from ppo_bench.envs.base import Atari, EnvStep, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolBackend
from ppo_bench.envs.envpool_xla import EnvPoolXlaBackend
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.time_limits import TimeLimitConfusion, measure_confusion
from ppo_bench.mathematics import noise

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
    monkeypatch.setattr(envpool_options, "ATARI_TASK_OPTIONS", set())  # the limit is the task's otherwise
    free = played(breakout("envpool", 27_000), 200)
    lost = int(np.flatnonzero(free.episode_over[:, 0])[0])
    resets = int((free.terminated[:lost, 0]).sum())  # of lost lives, which are no steps of the game
    limit = lost + 1 - resets
    for of_the_limit, expected in ((limit + 1, (True, False)), (limit, (True, False)), (limit - 1, (False, True))):
        steps = played(breakout(backend, of_the_limit), lost + 1)
        at = lost if of_the_limit >= limit else lost - 1
        assert (bool(steps.terminated[at, 0]), bool(steps.truncated[at, 0])) == expected
        assert steps.episode_over[at, 0]


def test_failures_at_a_limit_are_those_of_gymnasium() -> None:
    """Poles that fall in the ninth step, as the dynamics in another library have it from the same states."""
    found = measure_confusion(EnvPoolBackend("envpool", 0).make, Task("cartpole", "CartPole-v1", 1), limit=9)
    assert found is not None
    assert found.limit == 9
    env = gymnasium.make("CartPole-v1", max_episode_steps=9).unwrapped
    pool = EnvPoolBackend("envpool", 0).make(Task("cartpole", "CartPole-v1", 200))
    states = pool.reset(noise.env_seeds(1, 0, 200)).obs.astype(np.float64)
    actions = np.random.default_rng(1).integers(0, 2, (9, 200))  # those of the count
    pool.close()
    reached = failed = 0
    for state, own in zip(states, actions.T, strict=True):
        env.reset()
        env.state, env.steps_beyond_terminated = state, None  # type: ignore[attr-defined]
        fell = [bool(env.step(int(action))[2]) for action in own[:8]]
        if not any(fell):
            reached += 1
            failed += bool(env.step(int(own[8]))[2])
    assert (found.reached, found.failed) == (reached, failed)
    assert 0 < failed < reached


def test_what_does_not_fail_has_nothing_to_count() -> None:
    assert measure_confusion(EnvPoolBackend("envpool", 0).make, Task("pendulum", "Pendulum-v1", 1)) is None
    assert TimeLimitConfusion(9, 10, 2).failed == 2


def test_the_checker_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env=cartpole", "backend=envpool", "--num-steps=100"]) in (0, 1)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "taken for the limit" in line)
    said = r"ok    a failure at a time limit is taken for the limit: \d+ of \d+ episodes that reach a limit"
    assert re.match(said, line)
