"""CartPole in JAX against gymnasium's, and what environments written in JAX have in common."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench import noise
from ppo_bench.envs.base import Step, Task
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.jax.backend import JaxBackend
from ppo_bench.envs.jax.base import JaxEnv
from ppo_bench.envs.jax.cartpole import CartPole, CartPoleState
from ppo_bench.envs.jax.host import HostView
from ppo_bench.errors import ConfigError

CARTPOLE = Task("cartpole", "CartPole-v1", 4)

Policy = Callable[[np.ndarray], int]


def balance(obs: np.ndarray) -> int:
    """Holds the pole for 500 steps."""
    return int(obs @ np.array([0.05, 0.2, 1.0, 1.0]) > 0)


def random_policy(seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    return lambda obs: int(rng.integers(2))


def gymnasium_episode(seed: int, policy: Policy) -> tuple[np.ndarray, list[int], list[tuple[np.ndarray, bool, bool]]]:
    """The first state in float64, the actions, and observations with both flags."""
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=seed)
    first = np.array(env.unwrapped.state)  # type: ignore[attr-defined]
    actions: list[int] = []
    seen: list[tuple[np.ndarray, bool, bool]] = []
    while not seen or not (seen[-1][1] or seen[-1][2]):
        actions.append(policy(obs))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        assert reward == 1.0
        seen.append((obs, bool(terminated), bool(truncated)))
    return first, actions, seen


def follow(first: np.ndarray, actions: list[int]) -> list[Step]:
    """The same actions from the same first state, in one compiled program."""
    env = JaxEnv(CartPole(), 1)
    start = env.reset([0])
    with jax.enable_x64(True):
        state = start.state._replace(dynamics=CartPoleState(*jnp.asarray(first, jnp.float64)[:, None]))
    _, steps = jax.jit(lambda s, a: jax.lax.scan(start.step, s, a))(state, np.array(actions, np.int32)[:, None])
    columns = [np.asarray(array)[:, 0] for array in steps]
    return [Step(*row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("balanced", [True, False])
def test_cartpole_follows_gymnasium_over_whole_episodes(seed: int, balanced: bool) -> None:
    first, actions, seen = gymnasium_episode(seed, balance if balanced else random_policy(seed))
    steps = follow(first, actions)
    np.testing.assert_allclose([step.obs for step in steps], [obs for obs, _, _ in seen], rtol=0, atol=1e-5)
    flags = [(bool(step.terminated), bool(step.truncated)) for step in steps]
    assert flags == [(terminated, truncated) for _, terminated, truncated in seen]
    assert all(step.reward == 1.0 for step in steps)
    if balanced:
        assert len(steps) == 500
        assert flags[-1] == (False, True)


def test_a_fall_in_the_last_step_is_both_as_in_gymnasium() -> None:
    env = JaxEnv(CartPole(), 1)
    start = env.reset([0])
    with jax.enable_x64(True):
        fallen = CartPoleState(*(jnp.full(1, x, jnp.float64) for x in (2.39, 9.0, 0.0, 0.0)))
        state = start.state._replace(dynamics=fallen, steps=jnp.full(1, 499, jnp.int32))
    _, step = start.step(state, np.zeros(1, np.int32))
    assert (bool(step.terminated[0]), bool(step.truncated[0])) == (True, True)


@pytest.mark.parametrize("num_steps", [300, 1200])
def test_cartpole_in_jax_keeps_the_contract(num_steps: int) -> None:
    findings = check_contract(lambda: JaxBackend("jax").make(CARTPOLE), num_steps)
    assert {finding.rule: finding.evidence for finding in findings if not finding.kept} == {}
    assert len(findings) == 14


def test_a_truncated_episode_is_reset_in_the_next_step() -> None:
    env = HostView(JaxEnv(CartPole(), 3))
    obs = env.reset([1, 2, 3])
    for t in range(1, 503):
        step = env.step(np.array([balance(row) for row in obs]))
        assert not step.terminated.any()
        assert_array_equal(step.truncated, t == 500)
        assert_array_equal(step.reward, np.float32(t != 501))
        obs = step.obs
        if t == 501:
            assert np.abs(obs).max() <= 0.05


def test_first_states_are_uniform_and_differ_between_environments_and_episodes() -> None:
    env = JaxEnv(CartPole(), 2000)
    first = np.asarray(env.reset(noise.env_seeds(1, 0, 2000)).obs)
    assert np.abs(first).max() <= 0.05
    np.testing.assert_allclose(first.mean(0), 0.0, atol=0.003)
    np.testing.assert_allclose(first.std(0), 0.1 / np.sqrt(12), rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(first.T), np.eye(4), atol=0.1)
    assert len(np.unique(first, axis=0)) == 2000


def test_an_environment_does_not_depend_on_the_others() -> None:
    alone, together = HostView(JaxEnv(CartPole(), 1)), HostView(JaxEnv(CartPole(), 3))
    assert_array_equal(alone.reset([7])[0], together.reset([5, 7, 6])[1])
    for t in range(200):
        mine, theirs = (env.step(np.full(env.num_envs, t % 3 == 0, np.int32)) for env in (alone, together))
        assert_array_equal(mine.obs[0], theirs.obs[1])


def test_an_id_that_is_not_written_in_jax_is_refused() -> None:
    with pytest.raises(ConfigError, match="backend=jax has CartPole-v1"):
        JaxBackend("jax").make(Task("acrobot", "Acrobot-v1", 4))
