"""States of runners that are exported and restored, in the framework that wrote them and in another."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.mathematics.arrays import Arrays
from tests.runners import ACTING, after_iterations, cartpole_problem, relative_distance, runner_for

SEED = 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_exported_state_goes_on_as_the_one_it_came_from(framework: str) -> None:
    runner = runner_for(framework, cartpole_problem())
    state, _, _ = runner.iterate(runner.init(SEED))
    arrays = {name: array.copy() for name, array in runner.export(state).items()}
    state, _, _ = runner.iterate(runner.restart_envs(state))
    twin = runner_for(framework, cartpole_problem())
    twin_state, _, _ = twin.iterate(twin.restore(arrays))
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
