"""States of runners that are exported and restored, in the framework that wrote them and in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Runner
from tests.runners import ACTING, after_iterations, cartpole_problem, problem_for, relative_distance, runner_for

SEED = 3


ADAPTED = "env=pendulum precision=float64 ppo.num_steps=64 ppo.anneal_lr=false ppo.adaptive_kl=0.01"
NORMALIZED = "ppo.norm_obs=true ppo.norm_reward=true"


@pytest.mark.parametrize(
    ("framework", "words", "in_program"),
    [
        *((framework, "", False) for framework in ACTING),
        pytest.param("torch_compile", "", False, marks=pytest.mark.slow),
        *((framework, ADAPTED, False) for framework in ACTING),
        ("jax_xla", NORMALIZED, True),
    ],
)
def test_an_exported_state_goes_on_as_the_one_it_came_from(framework: str, words: str, in_program: bool) -> None:
    def made() -> Runner[Any]:
        overrides = words.split()
        spec = problem_for(DynamicsEnv(CartPole(), 4), 10, overrides) if in_program else cartpole_problem(*overrides)
        return runner_for(framework, spec)

    runner, twin = made(), made()
    state, rates = runner.init(SEED), []
    for _ in range(4):
        state, metrics, _ = runner.iterate(state)
        rates.append(metrics["learning_rate"])
    arrays = {name: array.copy() for name, array in runner.export(state).items()}
    state, metrics, episodes = runner.iterate(runner.restart_envs(state))
    twin_state, *measured = twin.iterate(twin.restore(arrays))
    assert measured == [metrics, episodes]
    assert metrics["learning_rate"] != rates[0]
    expected, found = runner.export(state), twin.export(twin_state)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("framework", ACTING)
def test_a_checkpoint_of_another_network_is_refused(framework: str) -> None:
    small = cartpole_problem("network=mlp", "network.hidden_sizes=[8, 8]")
    runner = runner_for(framework, cartpole_problem())
    with pytest.raises(ConfigError, match=r"actor\.0\.weight is \[8, 4\] in the checkpoint and \[64, 4\]"):
        runner.restore(after_iterations(framework, small, 0))
    deeper = cartpole_problem("network=mlp", "network.hidden_sizes=[64, 2, 2]")
    with pytest.raises(
        ConfigError, match=r"missing: params\.actor\.3\.bias, params\.actor\.3\.weight, .*; unexpected: none"
    ):
        runner_for(framework, deeper).restore(
            after_iterations(framework, cartpole_problem("network=mlp", "network.hidden_sizes=[64, 2]"), 0)
        )


def assert_same_learner(found: Arrays, expected: Arrays, tolerance: float) -> None:
    assert set(found) == set(expected)
    for name in expected:
        if name.startswith(("params.", "adam.mean.")):
            assert relative_distance(found[name], expected[name]) < tolerance, name


@pytest.mark.parametrize(("writer", "reader"), [ACTING, ACTING[::-1]])
def test_a_checkpoint_of_one_framework_goes_on_in_another(writer: str, reader: str) -> None:
    precise = "precision=float64"
    source = runner_for(writer, cartpole_problem(precise))
    state = source.init(SEED)
    state, _, _ = source.iterate(state)
    arrays = source.export(state)
    state, metrics, episodes = source.iterate(source.restart_envs(state))
    target = runner_for(reader, cartpole_problem(precise))
    target_state, target_metrics, target_episodes = target.iterate(target.restore(arrays))
    assert target_episodes == episodes
    assert_same_learner(target.export(target_state), source.export(state), 1e-10)
    assert list(target_metrics) == list(metrics)
    np.testing.assert_allclose([*target_metrics.values()], [*metrics.values()], rtol=1e-9, atol=1e-12)
