"""MuJoCo's robots on EnvPool and on gymnasium, which have other versions of MuJoCo: from one state they do the same."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo_bench.envs.base import Task
from ppo_bench.envs.envpool import pool_options

ROBOTS = {"Hopper-v4": 1, "Walker2d-v4": 1, "HalfCheetah-v4": 1, "InvertedPendulum-v4": 0, "Swimmer-v4": 2, "Ant-v4": 2}
ROBOTS |= {"Humanoid-v4": 2, "HumanoidStandup-v4": 2}
"""Ids, and how many of the first positions an observation leaves out: the robot's place, on which nothing depends."""
STEPS = {"HalfCheetah-v4": 10, "Humanoid-v4": 10, "HumanoidStandup-v4": 10}
"""Number of steps of robots that amplify rounding; else 30."""
TOLERANCES = {"Humanoid-v4": 2e-3, "HumanoidStandup-v4": 0.05}
"""Tolerances, relative and absolute, of robots whose contact forces, up to 3,000, are observed; else 1e-9."""


def pool_of(env_id: str, num_envs: int) -> Any:
    import envpool

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = pool_options(Task("robot", env_id, num_envs))
        return envpool.make_gymnasium(env_id, num_envs=num_envs, seed=1, **options)


@pytest.mark.parametrize("env_id", ROBOTS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_same_actions_lead_from_the_same_state_to_the_same_end(env_id: str) -> None:
    """Rewards of EnvPool are float32."""
    pool: Any = pool_of(env_id, 20)
    alone: Any = gymnasium.make(env_id).unwrapped
    obs, _ = pool.reset()
    begun, rng, hidden, ended = obs.copy(), np.random.default_rng(1), ROBOTS[env_id], 0
    steps, tolerance, forces = STEPS.get(env_id, 30), TOLERANCES.get(env_id, 1e-9), 0.0
    actions = [
        rng.uniform(pool.action_space.low, pool.action_space.high, (20, *pool.action_space.shape)) for _ in range(steps)
    ]
    given = [tuple(np.copy(array) for array in pool.step(action)[:3]) for action in actions]
    for env in range(20):
        alone.reset(seed=1)
        positions = alone.model.nq - hidden
        velocities = begun[env, positions : positions + alone.model.nv]
        alone.set_state(np.concatenate([np.zeros(hidden), begun[env, :positions]]), velocities)
        for action, (seen, rewards, terminated) in zip(actions, given, strict=True):
            mine, reward, over, _, _ = alone.step(action[env])
            np.testing.assert_allclose(seen[env], mine, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(rewards[env], reward, rtol=max(tolerance, 1e-6), atol=max(tolerance, 1e-6))
            forces = max(forces, np.abs(mine[-84:]).max())
            assert bool(terminated[env]) == over
            if over:
                ended += 1
                break
    assert ended > 10 or env_id not in ("Hopper-v4", "Walker2d-v4", "InvertedPendulum-v4")
    assert forces > 1000 or env_id not in TOLERANCES
