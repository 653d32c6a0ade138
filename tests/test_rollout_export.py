"""The exported state of host environments: it is restored, and it is reset by a restart."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import noise, normalize
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.host_envs import HostEnvs
from tests.scripted import Script, begun, collect, host, idle
from tests.test_rollout import statistics


def played() -> tuple[Script, HostEnvs, Arrays]:
    """A state with all that a rollout leaves: statistics, totals, flags, and an end on its last step."""
    env = Script(
        obs=[[1, 5], [2, 2], [9, 3]], rewards=[[0, 0], [10, 20], [30, 40]], policy_mask=[[1, 1], [1, 1], [0, 0]]
    )
    env.terminated[2, 0] = True
    envs = host(env, 2, norm_obs=True, norm_reward=True)
    state, _, _ = collect(envs, begun(envs), idle)
    assert_array_equal(state["envs.lengths"], [0, 2])
    assert state["envs.discounted_returns"].all()
    assert not state["envs.episode_start"].any()
    assert not state["envs.policy_mask"].any()
    return env, envs, state


def assert_fresh_with_these_statistics(state: Arrays, exported: Arrays) -> None:
    """Accumulators are cleared; statistics are the exported ones after the first observations of row 0."""
    assert not state["envs.done"].any()
    assert state["envs.episode_start"].all()
    assert state["envs.policy_mask"].all()
    assert not state["envs.returns"].any()
    assert not state["envs.lengths"].any()
    assert not state["envs.discounted_returns"].any()
    for field, value in zip(
        normalize.RunningStats._fields, normalize.select_stats(state, "normalize.return"), strict=True
    ):
        assert_array_equal(value, exported[f"normalize.return.{field}"])
    mean, var = statistics([1, 5, 2, 2, 9, 3, 1, 5])
    assert_allclose(normalize.select_stats(state, "normalize.obs").mean, [mean], rtol=1e-10)
    assert_allclose(normalize.select_stats(state, "normalize.obs").var, [var], rtol=1e-10)
    assert_allclose(normalize.select_stats(state, "normalize.obs").count, 8 + normalize.INITIAL_COUNT)
    assert_allclose(state["envs.obs"], (np.array([[1], [5]]) - mean) / np.sqrt(var + normalize.EPSILON), rtol=1e-6)


def test_statistics_survive_a_restart_and_a_restore_while_accumulators_are_cleared() -> None:
    _, envs, state = played()
    exported = envs.export(state)
    assert_fresh_with_these_statistics(envs.reset(state, 1, 3), exported)
    _, others, _ = played()
    assert_fresh_with_these_statistics(others.reset(exported, 1, 0), exported)


def test_seeds_follow_from_the_run_and_the_iteration() -> None:
    env, envs, state = played()
    envs.reset(state, 1, 3)
    envs.reset(envs.export(state), 2, 4)
    assert env.seeds == [noise.env_seeds(1, 0, 2), noise.env_seeds(1, 3, 2), noise.env_seeds(2, 4, 2)]
