"""Atari on gymnasium and on EnvPool are the same task, and a lost life is no new game.

How closely the two agree: played with the same actions, every reward, lost life and end is the same at the same step,
and every frame is the same bit for bit, but for the newest frame of the step that ends a game. There the game stops in
the middle of a frame skip, and the two take the maximum of different frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ale_py
import envpool
import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.envs import atari
from ppo_bench.envs.atari import make_atari
from ppo_bench.envs.atari_baselines import make_atari_baselines
from ppo_bench.envs.base import MAX_STEPS_PER_GAME, Atari, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolEnv
from ppo_bench.envs.gymnasium import GymnasiumEnv
from tests.ale import ale, copy, lives, play_to_the_end

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the v4 games are meant

ONE_NOOP_MAX = 1
"""Starts are the same everywhere: FIRE without no-ops, or one no-op in games without FIRE."""


class Moment(NamedTuple):
    """What a play shows after one step; the first one is that of the reset."""

    obs: np.ndarray
    reward: float
    raw_reward: float
    terminated: bool
    truncated: bool
    game_over: bool
    lives: int


def envpool_play(game: str, actions: np.ndarray, **options: int) -> Iterator[Moment]:
    pool = envpool.make_gymnasium(
        game, num_envs=1, env_seed=[3], episodic_life=True, reward_clip=True, noop_max=ONE_NOOP_MAX, **options
    )
    obs, info = pool.reset()
    yield Moment(obs[0], 0.0, 0.0, False, False, False, int(info["lives"][0]))
    for action in actions:
        obs, reward, terminated, truncated, info = pool.step(np.array([action]))
        game_over = bool(info["terminated"][0] or truncated[0])
        flags = bool(terminated[0]), bool(truncated[0]), game_over
        yield Moment(obs[0], float(reward[0]), float(info["reward"][0]), *flags, int(info["lives"][0]))
    pool.close()


def gymnasium_play(env_id: str, actions: np.ndarray) -> Iterator[Moment]:
    """With next-step autoreset."""
    env = make_atari(env_id, Atari(True, False), noop_max=ONE_NOOP_MAX)
    obs, _ = env.reset(seed=3)
    yield Moment(obs, 0.0, 0.0, False, False, False, lives(env))
    done = False
    for action in actions:
        raw_reward, terminated, truncated, info = 0.0, False, False, {"life_lost": False}
        if done:
            obs, _ = env.reset()
        else:
            obs, reward, terminated, truncated, info = env.step(action)
            raw_reward = float(reward)
        done = terminated or truncated
        game_over = done and not info["life_lost"]
        yield Moment(obs, float(np.sign(raw_reward)), raw_reward, terminated, truncated, game_over, lives(env))
    env.close()


def random_actions(env_id: str, num_steps: int) -> np.ndarray:
    env = make_atari(env_id, Atari(True, False))
    choices = env.action_space.n  # type: ignore[attr-defined]
    env.close()
    return np.random.default_rng(0).integers(0, choices, num_steps)


def assert_same_play(game: str, num_steps: int, **options: int) -> Counter[str]:
    """Every step of both plays agrees; what was met on the way."""
    env_id = f"{game}NoFrameskip-v4"
    actions = random_actions(env_id, num_steps)
    met: Counter[str] = Counter()
    plays = zip(gymnasium_play(env_id, actions), envpool_play(f"{game}-v5", actions, **options), strict=True)
    for step, (ours, theirs) in enumerate(plays):
        assert ours[1:] == theirs[1:], f"step {step}"
        same = slice(None, -1 if ours.game_over and not ours.truncated else None)
        assert_array_equal(ours.obs[same], theirs.obs[same], f"step {step}")
        met += Counter(
            games=ours.game_over,
            lost_lives=ours.terminated and not ours.game_over,
            truncations=ours.truncated,
            rewards=ours.raw_reward != 0,
            clipped=ours.raw_reward != ours.reward,
        )
    return met


def test_breakout_is_the_same_on_envpool() -> None:
    met = assert_same_play("Breakout", 3000)
    assert met["games"] >= 5
    assert 4 * met["games"] <= met["lost_lives"] <= 4 * met["games"] + 4
    assert met["rewards"] >= 10


def test_a_game_without_fire_is_the_same_on_envpool() -> None:
    assert not has_fire("Freeway")
    assert_same_play("Freeway", 300)


def test_the_step_limit_is_the_same_on_envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "MAX_STEPS_PER_GAME", 100)
    met = assert_same_play("Breakout", 1000, max_episode_steps=100)
    assert met["truncations"] >= 5
    assert met["lost_lives"] >= 5


def test_the_numbers_of_the_task_are_those_of_envpool() -> None:
    theirs = envpool.make_spec("Breakout-v5").config
    ours = (atari.NOOP_MAX, atari.FRAME_SKIP, Atari(True, False).frames, MAX_STEPS_PER_GAME)
    assert ours == (theirs.noop_max, theirs.frame_skip, theirs.stack_num, theirs.max_episode_steps)
    assert theirs.repeat_action_probability == 0
    assert theirs.use_fire_reset
    assert theirs.gray_scale
    assert theirs.use_inter_area_resize


def has_fire(game: str) -> bool:
    env = make_atari(f"{game}NoFrameskip-v4", Atari(True, False))
    meanings: list[str] = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    env.close()
    return "FIRE" in meanings


@pytest.mark.parametrize("backend", ["gymnasium", "gymnasium, baselines", "envpool"])
def test_an_episode_is_over_with_the_last_of_five_lives(backend: str) -> None:
    rules = Atari(episodic_life=True, reward_clip=True, baselines="baselines" in backend)
    env: VectorEnv
    if backend != "envpool":
        env = GymnasiumEnv(Task("breakout", "BreakoutNoFrameskip-v4", 1, rules), "sync")
    else:
        env = EnvPoolEnv(Task("breakout", "Breakout-v5", 1, rules), 1)
    env.reset([1])
    rng = np.random.default_rng(1)
    steps = [copy(env.step(rng.integers(0, 4, 1))) for _ in range(500)]
    env.close()
    over = [bool(step.episode_over[0]) for step in steps if step.terminated[0]]
    assert len(over) >= 10
    assert over == [end % 5 == 4 for end in range(len(over))]
    assert sum(step.episode_over[0] for step in steps) == sum(over)


def test_after_the_time_limit_of_a_wrapper_a_new_game_starts() -> None:
    """Its episodes are over, whether or not a life was lost just then."""
    limit = {"_target_": "gymnasium.wrappers.TimeLimit", "max_episode_steps": 40}
    rules = Atari(episodic_life=True, reward_clip=True)
    env = GymnasiumEnv(Task("breakout", "BreakoutNoFrameskip-v4", 1, rules, wrappers=(limit,)), "sync")
    env.reset([1])
    (game,) = env._envs._envs.envs
    rng = np.random.default_rng(1)
    cut = 0
    for _ in range(300):
        step = copy(env.step(rng.integers(0, 4, 1)))
        if step.truncated[0]:
            cut += 1
            assert step.episode_over[0]
            before = ale(game).getEpisodeFrameNumber()
            env.step(np.zeros(1, np.int64))
            assert ale(game).getEpisodeFrameNumber() <= atari.NOOP_MAX < before
            assert lives(game) == 5
    assert cut > 0
    env.close()


@pytest.mark.parametrize("make", [make_atari, make_atari_baselines])
def test_a_seed_starts_a_new_game_in_the_middle_of_one(make: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    env = make("BreakoutNoFrameskip-v4", Atari(True, False))
    fresh, _ = env.reset(seed=1)
    play_to_the_end(env)
    again, _ = env.reset(seed=1)
    assert lives(env) == 5
    assert_array_equal(again, fresh)


@pytest.mark.parametrize("make", [make_atari, make_atari_baselines])
def test_without_episodic_life_an_episode_is_a_game(make: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    env = make("BreakoutNoFrameskip-v4", Atari(False, False))
    env.reset(seed=1)
    _, _, info = play_to_the_end(env)
    assert not info["life_lost"]
    assert lives(env) == 0
