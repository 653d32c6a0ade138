"""Environments by their id: observations laid out as one vector, arguments, wrappers, and a worker that dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ppo_bench.common.errors import RunError
from ppo_bench.envs.base import Atari, Task
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.envs.vectorized import GymVectorEnv
from tests.test_envs import BACKENDS, refusal


def test_dictionaries_tuples_and_choices_are_laid_out_as_one_vector() -> None:
    """Blackjack: the player's sum of 32, the dealer's card of 11, a usable ace or not, each one-hot."""
    env = BACKENDS["gymnasium-sync"](Task("blackjack", "Blackjack-v1", 2))
    obs = env.reset([1, 2]).obs
    assert obs.shape == (2, 32 + 11 + 2)
    np.testing.assert_array_equal(np.add.reduceat(obs, [0, 32, 43], axis=1), np.ones((2, 3)))
    env.close()


def test_arguments_and_wrappers_reach_the_environment() -> None:
    limit = {"_target_": "gymnasium.wrappers.TimeLimit", "max_episode_steps": 3}
    task = Task("pendulum", "Pendulum-v1", 1, kwargs={"g": 0.0}, wrappers=(limit,))
    env = BACKENDS["gymnasium-sync"](task)
    env.reset([1])
    steps = [env.step(np.zeros((1, 1), np.float32)) for _ in range(3)]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True]
    # Without gravity and torque the pendulum keeps its speed.
    speeds = [float(step.obs[0, 2]) for step in steps]
    assert speeds == pytest.approx([speeds[0]] * 3)
    env.close()


def test_arguments_of_wrappers_may_be_functions_and_objects() -> None:
    tanh = {"_target_": "hydra.utils.get_method", "path": "numpy.tanh"}
    wrapper = {"_target_": "gymnasium.wrappers.TransformReward", "func": tanh}
    env = BACKENDS["gymnasium-sync"](Task("x", "CartPole-v1", 1, wrappers=(wrapper,)))
    env.reset([1])
    assert env.step(np.zeros(1, np.int64)).reward == pytest.approx(np.tanh(1.0))
    env.close()
    tanh["path"] = "numpy.nope"
    said = refusal(BACKENDS["gymnasium-sync"], Task("x", "CartPole-v1", 1, wrappers=(wrapper,)))
    assert "numpy.nope" in said


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task("x", "CartPole-v1", 1, kwargs={"nope": 1}), "unexpected keyword argument 'nope'"),
        (Task("x", "CartPole-v1", 1, wrappers=({"_target_": "gymnasium.wrappers.Nope"},)), "'gymnasium.wrappers.Nope'"),
        (Task("x", "CartPole-v1", 1, wrappers=("foo",)), "Cannot instantiate config of type str"),  # type: ignore[arg-type]
        (Task("x", "CartPole-v1", 1, wrappers=({},)), "{} is no gymnasium.Wrapper"),
        (Task("x", "CartPole-v1", 1, wrappers=({"_target_": "tests.lazy.Thing"},)), "'tests.lazy.Thing'"),
        (Task("x", "CartPole-v1", 1, wrappers=({"_target_": "gymnasium.Env"},)), "'gymnasium.core.Env'"),
        (
            Task("x", "CartPole-v1", 1, wrappers=({"_target_": "gymnasium.wrappers.TimeLimit", "limit": 3},)),
            "argument 'limit'",
        ),
        (
            Task("x", "Pendulum-v1", 1, wrappers=({"_target_": "gymnasium.wrappers.NormalizeReward"},)),
            "has statistics that checkpoints lack: use ppo.norm_reward=true",
        ),
    ],
)
def test_arguments_and_wrappers_that_do_not_exist_are_refused(task: Task, message: str) -> None:
    assert message in refusal(BACKENDS["gymnasium-sync"], task)


def test_arguments_of_atari_games_are_those_that_the_task_leaves_open() -> None:
    flags = Atari(episodic_life=True, reward_clip=True)
    fixed = Task("pong", "PongNoFrameskip-v4", 1, flags, kwargs={"frameskip": 2})
    assert "frameskip is part of the Atari task" in refusal(BACKENDS["gymnasium-sync"], fixed)
    BACKENDS["gymnasium-sync"](Task("pong", "PongNoFrameskip-v4", 1, flags, kwargs={"mode": 0})).close()
    override = Task("pong", "Pong-v5", 1, flags, kwargs={"reward_clip": False})
    assert "reward_clip cannot be set there" in refusal(BACKENDS["envpool"], override)
    sticky = Task("pong", "Pong-v5", 1, flags, kwargs={"repeat_action_probability": 0.25})
    assert "repeat_action_probability cannot be set there" in refusal(BACKENDS["envpool"], sticky)
    for backend, env_id in (("gymnasium-sync", "PongNoFrameskip-v4"), ("envpool", "Pong-v5")):  # in frames, in steps
        shorter = Task("pong", env_id, 1, flags, kwargs={"max_episode_steps": 100})
        assert "env.kwargs: max_episode_steps " in refusal(BACKENDS[backend], shorter)


@pytest.mark.parametrize(("backend", "env_id"), [("gymnasium-sync", "PongNoFrameskip-v4"), ("envpool", "Pong-v5")])
def test_sticky_actions_play_another_game_and_are_seeded(backend: str, env_id: str) -> None:
    def play(probability: float) -> np.ndarray:
        rules = Atari(episodic_life=True, reward_clip=True, repeat_action_probability=probability)
        env = BACKENDS[backend](Task("pong", env_id, 1, rules))
        env.reset([1])
        rng = np.random.default_rng(1)
        rows = [env.step(rng.integers(0, 6, 1)).obs.copy() for _ in range(60)]
        env.close()
        return np.stack(rows)

    plain, sticky = play(0.0), play(0.25)
    assert (plain != sticky).any()
    np.testing.assert_array_equal(sticky, play(0.25))


def test_envpool_has_its_own_arguments_and_no_wrappers() -> None:
    assert "argument 'nope'" in refusal(BACKENDS["envpool"], Task("x", "CartPole-v1", 1, kwargs={"nope": 1}))
    for name in ("num_envs", "max_num_players", "gym_reset_return_info", "task"):
        assert f"{name} cannot be set there" in refusal(
            BACKENDS["envpool"], Task("x", "CartPole-v1", 1, kwargs={name: 0})
        )
    endless = Task("x", "CartPole-v1", 1, kwargs={"max_episode_steps": -1})
    assert "max_episode_steps=-1: must be at least 1" in refusal(BACKENDS["envpool"], endless)
    mode = Task("x", "Pong-v5", 1, Atari(episodic_life=True, reward_clip=True), kwargs={"mode": 99})
    assert "cannot make 'Pong-v5': Invalid game mode" in refusal(BACKENDS["envpool"], mode)
    wrapped = Task("x", "CartPole-v1", 1, wrappers=({"_target_": "gymnasium.wrappers.TimeLimit"},))
    assert "use backend=gymnasium" in refusal(BACKENDS["envpool"], wrapped)


def test_an_environment_whose_constructor_fails_later_is_named() -> None:
    made: list[object] = []

    def build_another() -> Any:
        made.append(None)
        if len(made) == 3:
            raise OSError("port 5005 is in use")
        return gymnasium.make("CartPole-v1")

    with pytest.raises(RunError, match=r"mine:Env.*port 5005 is in use"):
        GymVectorEnv("mine:Env", build_another, 3, "sync")


def build(trouble: Callable[[], None]) -> Any:
    """A constructor that takes no `render_mode`, as one of a user's own may not."""
    return lambda: Breaks(trouble)


class Breaks(gymnasium.Env[Any, Any]):
    """Meets with `trouble` in the third step, or in the third reset."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)
    steps = resets = 0

    def __init__(self, trouble: Callable[[], None]) -> None:
        self.trouble = trouble

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        if self.resets == 3:
            self.trouble()
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 3:
            self.trouble()
        return np.zeros(2, np.float32), 0.0, False, False, {}


def end_the_process() -> None:
    os._exit(7)


def breaking(monkeypatch: pytest.MonkeyPatch, trouble: Callable[[], None], vectorization: str) -> GymnasiumEnv:
    spec = EnvSpec("Breaks-v0", entry_point=build(trouble), disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    env = GymnasiumEnv(Task("breaks", spec.id, 2), vectorization)
    env.reset([1, 2])
    env.reset([1, 2])
    return env


@pytest.mark.parametrize("moment", ["step", "reset"])
def test_a_worker_process_that_dies_is_named_and_nothing_hangs(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = breaking(monkeypatch, end_the_process, "async")
    for _ in range(2):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(RunError, match="a worker process of Breaks-v0 has ended"):
        env.step(np.zeros(2, np.int64)) if moment == "step" else env.reset([1, 2])
    env.close()


def test_a_reward_that_is_an_array_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes return it; in this process gymnasium refuses it."""
    env = breaking(monkeypatch, lambda: None, "sync")
    flags = np.zeros(2, bool)
    monkeypatch.setattr(env._envs, "step", lambda _: (np.zeros((2, 2)), np.ones((2, 1)), flags, flags, {}))
    with pytest.raises(RunError, match=r"Breaks-v0: step returns a reward of shape \(1,\): return one number"):
        env.step(np.zeros(2, np.int64))
    env.close()


def test_a_worker_that_resets_its_connection_at_the_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset(*_: Any, **__: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("ppo_bench.envs.vectorized.AsyncVectorEnv", reset)
    with pytest.raises(RunError, match="a worker process of CartPole-v1 has ended as it began"):
        BACKENDS["gymnasium-async"](Task("cartpole", "CartPole-v1", 2))


class Varied(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Entries of `info` whose type and shape vary, and a number."""

    def step(self, action: Any) -> Any:
        is_right = bool(action)
        info = {"path": np.zeros(2 if is_right else 3), "goal": None if is_right else 3, "score": 4}
        return (*super().step(action)[:4], info)


def test_entries_of_info_that_are_not_read_may_vary() -> None:
    wrapper = {"_target_": "tests.test_env_options.Varied"}
    env: Any = BACKENDS["gymnasium-sync"](Task("cartpole", "CartPole-v1", 2, wrappers=(wrapper,), info=("score",)))
    env.reset([1, 2])
    for t in range(4):
        env.step(np.array([t % 2, 1 - t % 2]))
    assert env.episode_info.keys() == {"score"}
    np.testing.assert_array_equal(env.episode_info["score"], [4.0, 4.0])
    env.close()


class Scored(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A score that is an int at resets and a float in steps."""

    def reset(self, **how: Any) -> Any:
        return super().reset(**how)[0], {"score": 0}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {"score": 0.75})


def test_numbers_keep_their_decimals_beside_an_environment_that_resets() -> None:
    """Gymnasium gives the entries of all environments the type of the first one's."""
    wrapper = {"_target_": "tests.test_env_options.Scored"}
    env: Any = BACKENDS["gymnasium-sync"](Task("cartpole", "CartPole-v1", 2, wrappers=(wrapper,), info=("score",)))
    env.reset([1, 2])
    told = []
    for t in range(25):  # the first falls to the left before the second, which is balanced longer
        reset = env.step(np.array([0, t % 2])).map(np.copy)
        told.append(env.episode_info["score"].copy())
        if reset.terminated[0]:
            break
    env.step(np.array([0, t % 2]))  # the first environment's reset
    np.testing.assert_array_equal(told, np.full((t + 1, 2), 0.75))
    np.testing.assert_array_equal(env.episode_info["score"], [np.nan, 0.75])
    env.close()
