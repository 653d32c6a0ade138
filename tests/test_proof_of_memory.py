"""Proof of memory: its rules by hand, the same on gymnasium and in JAX, learnt with a memory and not without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.proof_of_memory import Line, ProofOfMemory
from ppo_bench.mathematics import noise

LEFT, RIGHT = np.array([0]), np.array([1])


def test_an_episode_by_hand() -> None:
    """One step left of the middle; the right end pays. It is shown before three actions, two of which move nobody."""
    line = Line(np.array([-1]), np.array([1]), np.array([0]))
    rows = []
    for _ in range(8):
        shown = ProofOfMemory().observe(line)[0]
        line, reward, arrived = ProofOfMemory().step(line, RIGHT)
        rows.append((*shown.tolist(), float(reward[0]), bool(arrived[0])))
    expected = [(-1, -0.2, 1, 0, False), (-1, -0.2, 1, 0, False), (-1, -0.2, 1, -0.1, False)]
    expected += [(0, x, 0, -0.1, False) for x in (0, 0.2, 0.4, 0.6)] + [(0, 0.8, 0, 1.6, True)]
    assert_allclose(np.array(rows, float), np.array(expected, float), rtol=1e-6)
    # The other end costs as much.
    line = Line(np.array([-4]), np.array([1]), np.array([5]))
    _, reward, arrived = ProofOfMemory().step(line, LEFT)
    assert (float(reward[0]), bool(arrived[0])) == (-1.6, True)


def test_episodes_begin_everywhere_about_the_middle_and_either_end_pays() -> None:
    episodes = np.arange(10_000, dtype=np.int32)
    lines = ProofOfMemory().reset(noise.reset_words(np, 0 * episodes, episodes, 2))
    places, counts = np.unique(lines.position, return_counts=True)
    assert_array_equal(places, [-2, -1, 0, 1, 2])
    assert np.abs(counts / 2_000 - 1).max() < 0.1  # five standard deviations are 0.1
    assert abs(lines.pays.mean()) < 0.05


def env(backend: str, num_envs: int = 4) -> VectorEnv:
    words = ["env=proof_of_memory", f"backend={backend}", f"ppo.num_envs={num_envs}"]
    words += ["framework=jax_xla"] if backend == "device" else []
    config = load_config(words)
    return to_vector_env(config.backend.make(config.task))


def test_both_backends_play_the_same_trajectories() -> None:
    host, program = env("gymnasium"), env("device")
    assert_array_equal(host.reset([5, 6, 7, 8]).obs, program.reset([5, 6, 7, 8]).obs)
    rng, ends, limits = np.random.default_rng(1), 0, 0
    for _ in range(500):
        actions = rng.integers(0, 2, 4)
        one, other = host.step(actions), program.step(actions)
        assert_array_equal(one.obs, other.obs)
        assert_array_equal(one.raw_reward, other.raw_reward)
        assert_array_equal(one.terminated, other.terminated)
        assert_array_equal(one.episode_over, other.episode_over)
        ends, limits = ends + int(one.terminated.sum()), limits + int((one.episode_over & ~one.terminated).sum())
    assert min(ends, limits) > 10
    host.close()
    program.close()


def test_gymnasium_finds_nothing_to_say_of_it_and_draws_it() -> None:
    from gymnasium.utils.env_checker import check_env

    task: Any = gymnasium.make("ppo_bench.envs.proof_of_memory:ProofOfMemory-v0", render_mode="rgb_array")
    check_env(task.unwrapped)
    task.reset(seed=1)
    assert task.render().shape == (32, 352, 3)


@pytest.mark.slow
def test_a_memory_learns_it_and_none_does_not(tmp_path: Path) -> None:
    """Who knows the end gets 1.2 on average, who does not 0: each end is right half of the time."""
    returns = {}
    for network in ("gru", "mlp"):
        words = ["env=proof_of_memory", "backend=device", "framework=jax_xla", f"network={network}"]
        words += ["total_timesteps=40960", "checkpoint.every_iterations=5", f"outputs={tmp_path}"]
        assert exit_code(main, words) == 0
        result = json.loads((load_config(words).run_folder / "result.json").read_text())
        returns[network] = result["final_return_mean"]
    assert returns["gru"] > 1.1
    assert returns["mlp"] < 0.5
