"""Brax's robots on backend=device: its own physics and rewards, under the contract of every environment."""

from __future__ import annotations

import brax.envs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.envs.check import check_contract
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.host import JaxVectorEnv
from ppo_bench.envs.jax.brax import PIPELINE, Brax
from ppo_bench.envs.random_play import random_actions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pendulum() -> JaxVectorEnv:
    """Brax's smallest task, which ends when the pole falls. All that differs between tasks is Brax's."""
    return JaxVectorEnv(DynamicsEnv(Brax("brax-inverted_pendulum"), 4))


def test_a_task_keeps_the_contract(pendulum: JaxVectorEnv) -> None:
    findings = check_contract(lambda: pendulum, 200)
    assert {finding.rule: finding.evidence for finding in findings if not finding.holds} == {}
    assert pendulum.observation_space.shape == (4,)
    assert pendulum.action_space.shape == (1,)


def test_steps_are_those_of_brax_with_the_same_keys_until_each_pole_falls(pendulum: JaxVectorEnv) -> None:
    obs = pendulum.reset([5, 6, 7, 8]).obs
    with jax.enable_x64(False):  # whatever the tests before have left: Brax computes in float32
        step = jax.jit(jax.vmap(brax.envs.get_environment("inverted_pendulum", backend=PIPELINE).step))
    state = pendulum._state.dynamics
    assert_array_equal(obs, state.obs)
    rng, alive, ended = np.random.default_rng(3), np.ones(4, bool), 0
    while alive.any():
        actions = random_actions(pendulum, rng)
        mine = pendulum.step(actions)
        with jax.enable_x64(False):
            state = step(state, jnp.asarray(actions, jnp.float32))
        assert_array_equal(mine.obs[alive], state.obs[alive])  # the final one too, of those that end
        assert_array_equal(mine.reward[alive], state.reward[alive])
        assert_array_equal(mine.terminated[alive], state.done[alive] == 1.0)
        assert not mine.truncated.any()
        ended += int(mine.terminated[alive].sum())
        alive &= ~mine.terminated
    assert ended == 4
