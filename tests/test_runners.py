"""Properties of every runner: seeds, early stops, annealing; all learn the same. Of states: test_exported_states.py."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from ppo_bench.envs.base import EnvStep
from tests.probes import Endless
from tests.runners import ACTING, after_iterations, cartpole_problem, problem_for, relative_distance, runner_for
from tests.scenes import RandomScenes, Recorder
from tests.training import ENVIRONMENT

SEED = 3


class Overwriting(Endless):
    """Changes its actions in place, as an environment may do with what is handed to it."""

    def step(self, actions: np.ndarray) -> EnvStep:
        assert actions.dtype == np.int64
        actions[:] = 0
        return super().step(actions)


@pytest.mark.parametrize("framework", ACTING)
def test_actions_are_the_environments_own(framework: str) -> None:
    results = []
    for env in (Endless(num_envs=2), Overwriting(num_envs=2)):
        results.append(after_iterations(framework, problem_for(env, 2, ["ppo.num_steps=8"]), 2))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("framework", ACTING)
def test_a_minibatch_that_diverges_is_not_averaged_away(framework: str) -> None:
    runner = runner_for(framework, cartpole_problem("ppo.learning_rate=1e30"))
    _, metrics, _ = runner.iterate(runner.init(SEED))
    assert not math.isfinite(metrics["policy_loss"])
    assert not math.isfinite(metrics["gradient_norm"])


@pytest.mark.parametrize("framework", ACTING)
def test_the_learning_rate_falls_linearly(framework: str) -> None:
    spec = cartpole_problem("ppo.learning_rate=1.0e-3")
    runner = runner_for(framework, spec)
    state = runner.init(SEED)
    rates = []
    for _ in range(10):
        state, metrics, _ = runner.iterate(state)
        rates.append(metrics["learning_rate"])
    np.testing.assert_allclose(rates, np.linspace(1e-3, 1e-4, 10), rtol=1e-12)


@pytest.mark.parametrize("framework", ACTING)
def test_values_without_variance_leave_the_explained_variance_undefined(framework: str) -> None:
    env = Endless(num_envs=1)
    spec = problem_for(env, 1, ["ppo.num_steps=4", "ppo.gae_lambda=0.0", "ppo.gamma=0.0"])
    runner = runner_for(framework, spec)
    _, metrics, _ = runner.iterate(runner.init(SEED))
    assert math.isnan(metrics["explained_variance"])


@pytest.mark.parametrize(("pixels", "continuous"), [(False, False), (False, True), (True, False)])
def test_frameworks_take_the_same_actions_and_learn_the_same_in_float32(pixels: bool, continuous: bool) -> None:
    records = [Recorder(RandomScenes(4, pixels, continuous)) for _ in range(2)]
    arrays = []
    for name, record in zip(("torch_eager", "jax_xla"), records, strict=True):
        spec = problem_for(record, 10, ["ppo.num_steps=32"])
        arrays.append(after_iterations(name, spec, 2))
    taken, expected = (np.stack(record.actions) for record in reversed(records))
    np.testing.assert_allclose(taken, expected, rtol=0, atol=1e-4 if continuous else 0)
    mine, theirs = (np.concatenate([a[name].ravel() for name in arrays[0] if name[:7] == "params."]) for a in arrays)
    # Adam divides a gradient by its own size: where it is nearly 0, rounding decides the direction of a whole step.
    assert relative_distance(theirs, mine) < 2e-3


WITHOUT_A_COMPILER = """
import sys
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.distributed import build_runner

config = load_config(["framework=torch_eager", "backend=gymnasium"])
runner, *_ = build_runner(config, config.framework.runner)
runner.iterate(runner.init(1))
assert not {"torch._dynamo", "torch._inductor", "jax"} & set(sys.modules), sorted(sys.modules)
"""


def test_eager_pytorch_begins_without_importing_a_compiler() -> None:
    """Which takes as long as PyTorch itself."""
    subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER], check=True, env=ENVIRONMENT)
