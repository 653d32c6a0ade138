"""Starts and limits of Atari games: no-ops, the button that fires, the longest game."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.envs import atari, envpool
from ppo_bench.envs.atari import make_atari
from ppo_bench.envs.base import Atari, EnvStep, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolBackend
from tests.ale import ale

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the v4 games are meant


def start_frames(env: gymnasium.Env[Any, Any], seeds: range) -> list[int]:
    """How many frames were played before the first observation."""
    numbers = []
    for seed in seeds:
        env.reset(seed=seed)
        numbers.append(int(ale(env).getEpisodeFrameNumber()))
    return numbers


@pytest.mark.parametrize("game", ["Breakout", "Freeway"])
def test_seeds_differ_in_their_noops_and_repeat_them(game: str) -> None:
    # Breakout: 0 to 29 no-ops and FIRE. Freeway: 1 to 30 no-ops.
    env = make_atari(f"{game}NoFrameskip-v4", Atari(True, False))
    numbers = start_frames(env, range(20))
    assert set(numbers) <= set(range(1, 31))
    assert len(set(numbers)) >= 10
    assert start_frames(env, range(5)) == numbers[:5]


def memory_after(env_id: str, seed: int, actions: list[int]) -> np.ndarray:
    env = gymnasium.make(env_id, frameskip=1, repeat_action_probability=0.0)
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    memory: np.ndarray = ale(env).getRAM()
    return memory


@pytest.mark.parametrize(("game", "last"), [("Breakout", atari.FIRE), ("Freeway", atari.NOOP)])
def test_games_start_with_fire_only_where_they_have_it(game: str, last: int) -> None:
    env_id = f"{game}NoFrameskip-v4"
    env = make_atari(env_id, Atari(True, False))
    (frames,) = start_frames(env, range(3, 4))
    assert frames > 1
    other = 1 - last
    assert_array_equal(ale(env).getRAM(), memory_after(env_id, 3, [atari.NOOP] * (frames - 1) + [last]))
    assert not np.array_equal(ale(env).getRAM(), memory_after(env_id, 3, [atari.NOOP] * (frames - 1) + [other]))


def test_a_game_that_ends_on_the_step_limit_is_terminated_and_not_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_step() -> tuple[int, bool, bool]:
        env = make_atari("BreakoutNoFrameskip-v4", Atari(False, False))
        env.reset(seed=1)
        rng = np.random.default_rng(1)
        for step in range(1, 1000):
            _, _, terminated, truncated, _ = env.step(rng.integers(4))
            if terminated or truncated:
                return step, terminated, truncated
        raise AssertionError("the game does not end")

    length, terminated, truncated = last_step()
    assert (terminated, truncated) == (True, False)
    monkeypatch.setattr(atari, "MAX_STEPS_PER_GAME", length)
    assert last_step() == (length, True, False)
    monkeypatch.setattr(atari, "MAX_STEPS_PER_GAME", length - 1)
    assert last_step() == (length - 1, False, True)


LIVES = Atari(episodic_life=True, reward_clip=True)
ACTIONS = np.random.default_rng(0).integers(0, 4, 200)


def breakout(limit: int) -> VectorEnv:
    task = Task("breakout", "Breakout-v5", 1, LIVES, kwargs={"max_episode_steps": limit})
    return EnvPoolBackend("envpool", 1).make(task)


def played(env: VectorEnv, num_steps: int) -> EnvStep:
    env.reset([5])
    steps = EnvStep.stack([env.step(action).map(np.copy) for action in ACTIONS[:num_steps, None]])
    env.close()
    return steps


def test_a_game_that_is_lost_in_the_very_step_of_the_limit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envpool, "ATARI_TASK_OPTIONS", set())  # the limit is the task's otherwise
    free = played(breakout(27_000), 200)
    lost = int(np.flatnonzero(free.episode_over[:, 0])[0])
    resets = int((free.terminated[:lost, 0]).sum())  # of lost lives, which are no steps of the game
    limit = lost + 1 - resets
    for of_the_limit, expected in ((limit + 1, (True, False)), (limit, (True, False)), (limit - 1, (False, True))):
        steps = played(breakout(of_the_limit), lost + 1)
        at = lost if of_the_limit >= limit else lost - 1
        assert (bool(steps.terminated[at, 0]), bool(steps.truncated[at, 0])) == expected
        assert steps.episode_over[at, 0]
