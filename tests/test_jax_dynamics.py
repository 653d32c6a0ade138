"""Environments written in JAX follow gymnasium's: same first states, same actions, whole episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.envs.base import Task
from ppo_bench.envs.device import DeviceBackend
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.mathematics import noise
from tests.test_envs import balance

TOLERANCE = 1e-5
SEEDS = range(8)

Policy = Callable[[np.ndarray], Any]


def pump(obs: np.ndarray) -> int:
    """Swings Acrobot up with the motion of its first link."""
    return 2 if obs[4] < 0 else 0


def rock(obs: np.ndarray) -> int:
    """Drives MountainCar with its motion, to the goal."""
    return 2 if obs[1] >= 0 else 0


def rock_softly(obs: np.ndarray) -> np.ndarray:
    return np.array([1.0 if obs[1] >= 0 else -1.0], np.float32)


def swing_up(obs: np.ndarray) -> np.ndarray:
    """Swings Pendulum up and holds it, often with more torque than it takes."""
    cos, sin, speed = obs
    torque = -10 * np.arctan2(sin, cos) - 3 * speed if cos > 0.8 else 3 * np.sign(speed)
    return np.array([torque], np.float32)


GOOD: dict[str, Policy] = {
    "CartPole-v1": balance,
    "Acrobot-v1": pump,
    "MountainCar-v0": rock,
    "MountainCarContinuous-v0": rock_softly,
    "Pendulum-v1": swing_up,
}
ENDS = {  # (terminated, truncated) of good play
    "CartPole-v1": (False, True),
    "Acrobot-v1": (True, False),
    "MountainCar-v0": (True, False),
    "MountainCarContinuous-v0": (True, False),
    "Pendulum-v1": (False, True),
}
RANDOM_ENDS = dict.fromkeys(GOOD, (False, True)) | {"CartPole-v1": (True, False)}


class Episode(NamedTuple):
    """What gymnasium showed: the first state in float64, then a row a step."""

    first: np.ndarray
    actions: np.ndarray
    obs: np.ndarray
    rewards: np.ndarray
    flags: np.ndarray


def episodes_in_gymnasium(env_id: str, good: bool) -> list[Episode]:
    env = gymnasium.make(env_id)
    episodes = []
    for seed in SEEDS:
        env.action_space.seed(seed)
        obs, _ = env.reset(seed=seed)
        first = np.array(env.unwrapped.state, np.float64)  # type: ignore[attr-defined]
        rows: list[Any] = []
        while not rows or not any(rows[-1][3]):
            action = GOOD[env_id](obs) if good else env.action_space.sample()
            obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((action, obs, reward, (terminated, truncated)))
        episodes.append(Episode(first, *(np.array(column) for column in zip(*rows, strict=True))))
    return episodes


def follow(env: DynamicsEnv, episodes: list[Episode]) -> list[Episode]:
    """The same actions from the same first states: one compiled program, all episodes side by side."""
    state, _ = env.reset(jnp, range(len(episodes)))
    with jax.enable_x64(True):
        positions = [jnp.asarray(column) for column in np.stack([episode.first for episode in episodes], axis=1)]
        dynamics = type(state.dynamics)(*positions, *state.dynamics[len(positions) :])
        state = state._replace(dynamics=dynamics)
    longest = max(len(episode.actions) for episode in episodes)
    actions = np.stack([np.resize(episode.actions, (longest, *episode.actions.shape[1:])) for episode in episodes], 1)
    if isinstance(env.action_space, spaces.Discrete):
        actions = actions.astype(np.int32)
    _, steps = jax.jit(lambda s, a: jax.lax.scan(env.step, s, a))(state, actions)
    obs, reward, flags = (np.asarray(x) for x in (steps.obs, steps.reward, jnp.stack([steps[2], steps[3]], -1)))
    lengths = [len(episode.actions) for episode in episodes]
    return [
        Episode(e.first, e.actions, obs[:n, i], reward[:n, i], flags[:n, i])
        for i, (e, n) in enumerate(zip(episodes, lengths, strict=True))
    ]


@pytest.mark.parametrize("env_id", GOOD)
@pytest.mark.parametrize("good", [True, False])
def test_whole_episodes_follow_gymnasium(env_id: str, good: bool) -> None:
    theirs = episodes_in_gymnasium(env_id, good)
    ours = follow(DeviceBackend("device").make(Task("any", env_id, len(SEEDS))), theirs)
    for mine, expected in zip(ours, theirs, strict=True):
        assert_array_equal(mine.flags, expected.flags)
        np.testing.assert_allclose(mine.obs, expected.obs, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(mine.rewards, expected.rewards, rtol=0, atol=TOLERANCE)
    limit = gymnasium.spec(env_id).max_episode_steps
    ends = {tuple(bool(flag) for flag in episode.flags[-1]) for episode in theirs}
    assert {len(e.flags) == limit for e in theirs if not e.flags[-1][0]} <= {True}
    assert ends == {ENDS[env_id] if good else RANDOM_ENDS[env_id]}


@pytest.mark.parametrize("env_id", GOOD)
def test_spaces_are_gymnasiums(env_id: str) -> None:
    theirs, ours = gymnasium.make(env_id), DeviceBackend("device").make(Task("any", env_id, 1))
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space


@pytest.mark.parametrize("env_id", GOOD)
def test_first_states_are_uniform_within_gymnasiums_limits(env_id: str) -> None:
    env = gymnasium.make(env_id).unwrapped
    limits: dict[str, Any] = {
        "CartPole-v1": [[-0.05, 0.05]] * 4,
        "Acrobot-v1": [[-0.1, 0.1]] * 4,
        "MountainCar-v0": [[-0.6, -0.4], [0, 0]],
        "MountainCarContinuous-v0": [[-0.6, -0.4], [0, 0]],
        "Pendulum-v1": [[-math.pi, math.pi], [-1, 1]],
    }
    low, high = np.array(limits[env_id]).T
    theirs = np.empty((500, len(low)))
    for seed, row in enumerate(theirs):
        env.reset(seed=seed)
        row[:] = env.state  # type: ignore[attr-defined]
    state, _ = DeviceBackend("device").make(Task("any", env_id, 4000)).reset(jnp, noise.env_seeds(1, 0, 4000))
    ours = np.stack([np.asarray(x) for x in state.dynamics[: len(low)]], 1)
    for values, spread in ((theirs, 0.15), (ours, 0.05)):  # the limits above are gymnasium's, and ours
        assert ((low - 1e-7 <= values) & (values <= high + 1e-7)).all()
        np.testing.assert_allclose(values.mean(0), (low + high) / 2, atol=spread * (high - low).max())
        np.testing.assert_allclose(values.std(0), (high - low) / np.sqrt(12), rtol=spread, atol=1e-12)
