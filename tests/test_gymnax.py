"""Environments with gymnax's interface, played beside their own `reset_env` and `step_env`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import spaces
from numpy.testing import assert_array_equal

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Task
from ppo_bench.envs.device import DeviceBackend
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.jax.gymnax import Gymnax
from ppo_bench.mathematics import noise

OF_GYMNAX = "gymnax.environments"
CARTPOLE = f"{OF_GYMNAX}.classic_control.cartpole:CartPole"
PENDULUM = f"{OF_GYMNAX}.classic_control.pendulum:Pendulum"
BREAKOUT = f"{OF_GYMNAX}.minatar.breakout:MinBreakout"
LAKE = f"{OF_GYMNAX}.misc.frozen_lake:FrozenLake"
CRAFTAX = "craftax.craftax_classic.envs.craftax_symbolic_env:CraftaxClassicSymbolicEnv"


class Count(NamedTuple):
    """State of `Counting`."""

    time: jax.Array


@struct.dataclass
class Limited:
    """Parameters of `Counting`."""

    max_steps_in_episode: int = 7


class Counting:
    """An environment of gymnax before 1.0, whose flag of an end includes the time limit. Action 1 ends the episode."""

    default_params = Limited()

    def reset_env(self, key: jax.Array, params: Limited) -> tuple[jax.Array, Count]:
        return jnp.zeros(1), Count(jnp.int32(0))

    def step_env(self, key: jax.Array, state: Count, action: jax.Array, params: Limited) -> Any:
        time = state.time + 1
        done = (action == 1) | (time >= params.max_steps_in_episode)
        return time[None].astype(jnp.float32), Count(time), jnp.float32(0.5), done, {}

    def observation_space(self, params: Limited) -> Any:
        return spaces.Box(0.0, 7.0, (1,), jnp.float32)

    def action_space(self, params: Limited) -> Any:
        return spaces.Discrete(2)


def made(env_id: str, num_envs: int = 2, **kwargs: Any) -> DynamicsEnv:
    return DeviceBackend("device").make(Task("own", env_id, num_envs, kwargs=kwargs))


@pytest.mark.parametrize(
    "env_id", [LAKE, *(pytest.param(each, marks=pytest.mark.slow) for each in (PENDULUM, BREAKOUT))]
)
def test_an_environment_is_stepped_as_it_steps_itself(env_id: str) -> None:
    env, seeds = made(env_id), [5, 6]
    stands, policy_input = env.reset(jnp, seeds)
    module, _, name = env_id.partition(":")
    own = getattr(__import__(module, fromlist=[name]), name)()
    words = noise.reset_words(jnp, jnp.array(seeds, jnp.int32), jnp.zeros(2, jnp.int32), 2)
    keys = jax.lax.bitcast_convert_type(words, jnp.uint32)
    shown, state = own.reset_env(keys[1], own.default_params)
    choices = own.observation_space(own.default_params)
    one_hot = (lambda obs: np.eye(choices.n)[obs]) if hasattr(choices, "n") else np.asarray
    assert_array_equal(np.asarray(policy_input.obs)[1], one_hot(shown))
    rng = np.random.default_rng(1)
    for t in range(1, 30):
        action: Any = rng.integers(env.action_space.n) if hasattr(env.action_space, "n") else rng.uniform(-2, 2, 1)
        stands, step = env.step(stands, jnp.array([action, action]))
        key = jax.random.fold_in(keys[1], t)
        with jax.enable_x64(False):
            shown, state, reward, terminated, _ = own.step_env(key, state, jnp.asarray(action), own.default_params)
        np.testing.assert_allclose(np.asarray(step.obs)[1], one_hot(shown), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(float(step.reward[1]), float(np.squeeze(reward)), rtol=1e-5, atol=1e-6)
        assert bool(step.terminated[1]) == bool(terminated)
        if terminated:
            break


def test_a_time_limit_is_no_end_of_the_game_in_the_older_interface_either() -> None:
    env, flags = made("tests.test_gymnax:Counting"), []
    state, _ = env.reset(jnp, [1, 2])
    for t in range(1, 8):
        state, step = env.step(state, jnp.array([0, int(t == 3)]))
        flags.append((step.terminated.tolist(), step.truncated.tolist()))
    assert flags[2] == ([False, True], [False, False])
    assert flags[6][0][0] is False
    assert flags[6][1][0] is True
    assert not any(terminated[0] or truncated[0] for terminated, truncated in flags[:6])


def test_parameters_are_those_that_are_given() -> None:
    env = made("tests.test_gymnax:Counting", max_steps_in_episode=3)
    (state, _), truncated = env.reset(jnp, [1, 2]), []
    for _ in range(3):
        state, step = env.step(state, jnp.array([0, 0]))
        truncated.append(step.truncated.tolist())
    assert truncated == [[False, False], [False, False], [True, True]]
    with pytest.raises(ConfigError, match=r"raises TypeError: .* argument 'theta'"):
        made("tests.test_gymnax:Counting", theta=0.1)
    with pytest.raises(ConfigError, match="time_limit=0 must be an integer, at least 1"):
        made("tests.test_gymnax:Counting", max_steps_in_episode=0)


@pytest.mark.slow
def test_craftax_fits_the_interface() -> None:
    """Its programs are traced, and not run: compiling them takes half a minute."""
    env = made(CRAFTAX, 2)

    def played(seeds: jax.Array) -> Any:
        state, policy_input = env.reset(jnp, seeds)  # type: ignore[arg-type]
        _, step = env.step(state, jnp.zeros(2, jnp.int32))
        return policy_input.obs, step.obs, step.reward

    first, obs, reward = jax.eval_shape(played, jnp.arange(2, dtype=jnp.int32))
    assert first.shape == obs.shape == (2, *(env.observation_space.shape or ()))
    assert (obs.dtype, reward.shape, reward.dtype) == (np.float32, (2,), np.float32)


def test_resets_of_worlds_are_costly_and_those_of_control_are_not() -> None:
    assert [Gymnax(resolve_name(env_id)(), {}).costly_resets for env_id in (CRAFTAX, CARTPOLE)] == [True, False]
