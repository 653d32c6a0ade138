"""MuJoCo's robots on EnvPool and on gymnasium, which have other versions of MuJoCo: from the same state they do the
same, and episodes begin alike."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy import stats

ROBOTS = {"Hopper-v4": 1, "Walker2d-v4": 1, "HalfCheetah-v4": 1, "InvertedPendulum-v4": 0}
"""Ids, and how many of the first positions an observation leaves out: the robot's place, on which nothing depends."""


def pool_of(env_id: str, num_envs: int) -> Any:
    import envpool

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return envpool.make_gymnasium(env_id, num_envs=num_envs, seed=1)


@pytest.mark.parametrize("env_id", ROBOTS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_same_actions_lead_from_the_same_state_to_the_same_end(env_id: str) -> None:
    """Rewards of EnvPool are float32. The cheetah never falls and amplifies rounding, so it is left after 10 steps."""
    pool: Any = pool_of(env_id, 20)
    alone: Any = gymnasium.make(env_id).unwrapped
    obs, _ = pool.reset()
    begun, rng, hidden, ended = obs.copy(), np.random.default_rng(1), ROBOTS[env_id], 0
    steps = 10 if env_id == "HalfCheetah-v4" else 30
    actions = [
        rng.uniform(pool.action_space.low, pool.action_space.high, (20, *pool.action_space.shape)) for _ in range(steps)
    ]
    given = [tuple(np.copy(array) for array in pool.step(action)[:3]) for action in actions]
    for env in range(20):
        alone.reset(seed=1)
        positions = alone.model.nq - hidden
        alone.set_state(np.concatenate([np.zeros(hidden), begun[env, :positions]]), begun[env, positions:])
        for action, (seen, rewards, terminated) in zip(actions, given, strict=True):
            mine, reward, over, _, _ = alone.step(action[env])
            np.testing.assert_allclose(seen[env], mine, rtol=0, atol=1e-9)
            np.testing.assert_allclose(rewards[env], reward, rtol=1e-6, atol=1e-6)
            assert bool(terminated[env]) == over
            if over:
                ended += 1
                break
    assert ended == 0 if env_id == "HalfCheetah-v4" else ended > 10


@pytest.mark.parametrize("env_id", ROBOTS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_episodes_begin_alike(env_id: str) -> None:
    pool, alone = pool_of(env_id, 500), gymnasium.make(env_id)
    first, _ = pool.reset()
    theirs = np.stack([alone.reset(seed=seed)[0] for seed in range(500)])
    assert first.shape == theirs.shape
    pvalues = [stats.ks_2samp(ours, their).pvalue for ours, their in zip(first.T, theirs.T, strict=True)]
    assert min(pvalues) > 0.001 / len(pvalues)
