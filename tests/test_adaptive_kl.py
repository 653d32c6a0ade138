"""`ppo.adaptive_kl`: the learning rate follows the KL divergence of the updates, in every framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics import ppo
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Runner
from tests.namespaces import Namespace
from tests.runners import ACTING, composed, problem_for, runner_for
from tests.training import rows, trained

HIGHEST = 1e-3
ADAPTIVE = ["ppo.anneal_lr=false", "ppo.adaptive_kl=0.01"]
BOUNDED = [*ADAPTIVE, f"ppo.max_learning_rate={HIGHEST}"]
PENDULUM = ["env=pendulum", "ppo.num_envs=4", "ppo.num_steps=64", "ppo.num_minibatches=4"]


def test_the_factor_by_hand(ns: Namespace) -> None:
    # Above twice 0.01 it falls, below half of it it rises, between them and on the borders it stays.
    divergences = [0.0201, 0.02, 0.01, 0.005, 0.0049, 0.0]
    factors = ns.run(ppo.adapt_lr_factor, [1.0] * 6, divergences, 0.01, 0.1, 10.0)
    assert_allclose(factors, [2 / 3, 1.0, 1.0, 1.0, 1.5, 1.5], rtol=1e-15)
    bounded = ns.run(ppo.adapt_lr_factor, [9.0, 0.12], [0.0, 1.0], 0.01, 0.1, 10.0)
    assert_allclose(bounded, [10.0, 0.1], rtol=1e-15)


def rates_and_divergences(runner: Runner[Any], iterations: int) -> tuple[list[float], list[float]]:
    state, rates, divergences = runner.init(1), [], []
    for _ in range(iterations):
        state, metrics, _ = runner.iterate(state)
        rates.append(metrics["learning_rate"])
        divergences.append(metrics["approx_kl"])
    runner.close()
    return rates, divergences


def schedule(first: float, divergences: list[float]) -> list[float]:
    """The rule as rl_games and RSL-RL write it."""
    rate, rates = first, []
    for divergence in divergences:
        rates.append(rate)
        if divergence > 2 * 0.01:
            rate = max(1e-5, rate / 1.5)
        elif divergence < 0.01 / 2:
            rate = min(HIGHEST, rate * 1.5)
    return rates


def test_every_framework_follows_the_schedule_and_they_agree() -> None:
    found = []
    for framework, backend in [*((name, "gymnasium") for name in ACTING), ("jax_xla", "device")]:
        words = [*PENDULUM, *BOUNDED, f"backend={backend}", "ppo.learning_rate=1e-4"]
        config = composed(*words, "precision=float64", f"framework={framework}")
        spec = problem_for(config.backend.make(config.task), 12, [*words, "precision=float64"])
        rates, divergences = rates_and_divergences(runner_for(framework, spec), 12)
        assert_allclose(rates, schedule(1e-4, divergences), rtol=1e-12)
        assert len(set(rates)) > 2  # else it has shown nothing
        found.append((rates, divergences))
    for rates, divergences in found[1 : len(ACTING)]:
        assert_allclose(rates, found[0][0], rtol=1e-12)
        assert_allclose(divergences, found[0][1], rtol=1e-6)


def test_a_run_that_loads_another_begins_within_its_own_bounds(tmp_path: Path) -> None:
    words = [*PENDULUM, *ADAPTIVE, "framework=torch_eager", "backend=gymnasium", "total_timesteps=512"]
    newest = checkpoint.find(trained(tmp_path / "first", *words))
    saved = checkpoint.load(newest)
    risen = saved.arrays | {"statistics.learning_rate_factor": np.array(30.0, np.float32)}
    checkpoint.save(newest.parent, 2, saved._replace(arrays=risen))
    more = ["total_timesteps=1024", "ppo.learning_rate=5e-3", f"checkpoint.load={newest}"]
    first, *_ = rows(trained(tmp_path / "second", *words, *more))
    assert first["learning_rate"] == pytest.approx(1e-2)


@pytest.mark.slow
def test_seeds_in_one_program_have_learning_rates_of_their_own() -> None:
    words = [*PENDULUM, *BOUNDED, "framework=jax_xla", "backend=device", "num_seeds=3", "precision=float64"]
    config = load_config(words)
    runner = config.framework.seeds_runner(config.training_spec(config.backend.make(config.task)), ())
    state, rates, divergences = runner.init([1, 2, 3]), [], []
    for _ in range(12):
        state, measured = runner.iterate(state)
        rates.append([metrics["learning_rate"] for metrics, _ in measured])
        divergences.append([metrics["approx_kl"] for metrics, _ in measured])
    runner.close()
    for own, divergence in zip(np.transpose(rates), np.transpose(divergences), strict=True):
        assert_allclose(own, schedule(config.ppo.learning_rate, divergence.tolist()), rtol=1e-12)
    assert len(set(map(tuple, np.transpose(rates)))) > 1
