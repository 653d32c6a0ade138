"""The MinAtar games on backend=device: pgx's dynamics under the contract, and a network that learns them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import Task
from ppo_bench.envs.device import MINATAR, DeviceBackend
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.host import JaxVectorEnv
from ppo_bench.envs.jax.pgx_games import MinAtar
from ppo_bench.envs.random_play import random_actions

pytestmark = pytest.mark.slow

SHAPES = {"asterix": (4, 5), "breakout": (4, 3), "freeway": (7, 3), "seaquest": (10, 6), "space_invaders": (6, 4)}


@pytest.mark.parametrize("env_id", MINATAR)
def test_every_game_has_its_images_and_actions_and_a_file(env_id: str) -> None:
    channels, num_actions = SHAPES[env_id.removeprefix("minatar-")]
    env = DeviceBackend("device").make(Task("any", env_id, 2))
    assert env.observation_space.shape == (10, 10, channels)
    assert env.observation_space.dtype == bool
    assert env.action_space == spaces.Discrete(num_actions)
    config = load_config([f"env={env_id.replace('-', '_')}"])
    assert (config.task.id, config.backend.name, config.framework.name) == (env_id, "device", "jax_xla")


def test_a_game_is_made_and_played_where_jax_computes_in_float64() -> None:
    """As under precision=float64; Freeway's own code would fail there."""
    jax.clear_caches()  # what was traced in float32 would hide it
    with jax.enable_x64(True):
        env = JaxVectorEnv(DynamicsEnv(MinAtar("minatar-freeway"), 2))
        first, second = env.reset([1, 2]).obs, env.step(np.array([0, 1])).obs
    narrow = JaxVectorEnv(DynamicsEnv(MinAtar("minatar-freeway"), 2))
    assert_array_equal(first, narrow.reset([1, 2]).obs)
    assert_array_equal(second, narrow.step(np.array([0, 1])).obs)


def test_a_game_is_what_pgx_plays_with_the_same_keys() -> None:
    """Until the first end; rewards are its own, and the final observation is shown."""
    env = JaxVectorEnv(DynamicsEnv(MinAtar("minatar-breakout"), 1))
    obs = env.reset([5]).obs
    key = env._state.dynamics.key[0]
    game = pgx.make("minatar-breakout")
    theirs, step = game.init(jax.random.wrap_key_data(key)), jax.jit(game.step)
    rng, total = np.random.default_rng(3), 0.0
    for t in range(1, 100):
        assert_array_equal(obs[0], theirs.observation)
        action = random_actions(env, rng)
        mine = env.step(action)
        theirs = step(theirs, jnp.int32(action[0]), jax.random.fold_in(jax.random.wrap_key_data(key), t))
        obs, total = mine.obs, total + float(mine.reward[0])
        assert (mine.reward[0], mine.terminated[0]) == (theirs.rewards[0], theirs.terminated)
        if mine.terminated[0]:
            break
    assert mine.terminated[0]
    assert_array_equal(obs[0], theirs.observation)  # the final one; the first shows the ball in row 3
    assert_array_equal(np.argwhere(env.step(action).obs[0, :, :, 1])[:, 0], [3])
