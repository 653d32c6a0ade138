"""Random network distillation: statistics, warm-up, learnt and fixed parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Task
from ppo_bench.envs.deep_sea import SIZES
from ppo_bench.envs.device import DEEP_SEA, DeviceBackend
from ppo_bench.envs.gymnasium import GymnasiumBackend
from ppo_bench.mathematics.arrays import Arrays, select_prefix
from ppo_bench.mathematics.normalize import RunningStats, update_stats_centered
from ppo_bench.networks.rnd_networks import rnd_networks
from ppo_bench.networks.spec import ImpalaCnn
from tests.runners import ACTING, problem_for, runner_for

SMALL = ["algorithm=rnd", "algorithm.features=8", "precision=float64", "ppo.num_steps=16"]


def test_statistics_of_a_pixel_that_never_changes_hold_in_float32() -> None:
    """The same number of entries again, all at the mean: it stays, and the variance is halved."""
    rows, mask = torch.full((4097, 1), 200.1), torch.ones(4097)
    known = RunningStats(rows[0], torch.tensor([1e-6]), torch.tensor(4097.0))
    after = update_stats_centered(torch, known, rows, mask)
    assert_array_equal(after.mean, rows[0])
    assert_allclose(after.var, 0.5e-6, rtol=1e-6)
    first = update_stats_centered(torch, RunningStats(torch.zeros(1), torch.ones(1), torch.tensor(1e-4)), rows, mask)
    assert_allclose(first.mean, 200.1 * 4097 / 4097.0001, rtol=3e-7)


def statistics_of(framework: str, env: Any, words: list[str]) -> Arrays:
    spec = problem_for(env, 10, words)
    runner = runner_for(framework, spec)
    arrays = runner.export(runner.init(1))
    runner.close()
    return arrays


def test_warm_up_sees_the_same_in_every_framework_and_backend() -> None:
    words = [*SMALL, "algorithm.warm_up_iterations=3"]
    host = Task("deep_sea", "ppo_bench.envs.deep_sea:DeepSea10-v0", 4)
    seen = [statistics_of(f, GymnasiumBackend("gymnasium", "sync").make(host), words) for f in ACTING]
    seen.append(statistics_of("jax_xla", DeviceBackend("device").make(Task("deep_sea", "DeepSea10-v0", 4)), words))
    cold = statistics_of(
        "torch_eager", GymnasiumBackend("gymnasium", "sync").make(host), [*words[:-1], "algorithm.warm_up_iterations=0"]
    )
    for arrays in seen:
        statistics = select_prefix("statistics", arrays)
        # 3 x 16 steps of 4 environments, of which one in eleven only resets.
        assert 170 <= float(statistics["inputs.count"]) <= 180
        assert 0.05 < float(statistics["inputs.mean"].max()) < 0.2  # the cells of a first step
        for name, array in statistics.items():
            assert_allclose(array, select_prefix("statistics", seen[0])[name], rtol=1e-12, atol=1e-15, err_msg=name)
        for name, array in select_prefix("params", cold).items():  # uniform actions leave the policy as it is drawn
            assert_array_equal(array, select_prefix("params", arrays)[name], err_msg=name)
        assert int(arrays["iteration"]) == 0
        assert not select_prefix("statistics", arrays)["intrinsic_returns"].any()


def test_images_that_are_too_small_are_refused() -> None:
    network = ImpalaCnn().build(spaces.Box(0, 255, (20, 20, 3), np.uint8), spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"algorithm=rnd: images of shape \(20, 20\) are too small for it"):
        rnd_networks(network, 8)


def test_programs_know_the_sizes_that_gymnasium_knows() -> None:
    assert [f"DeepSea{size}-v0" for size in SIZES] == list(DEEP_SEA)
