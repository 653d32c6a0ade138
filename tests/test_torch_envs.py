"""Environments as tensors of PyTorch: the trainings are those of the JAX program."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.arrays import Array, Arrays
from ppo_bench.runners import torch as torch_runner
from ppo_bench.runners import torch_envs
from ppo_bench.runners.array_specs import normalization_array_specs
from ppo_bench.runners.base import Episode, Metrics
from ppo_bench.runners.host import HostRunner, step_by_step
from ppo_bench.runners.torch_envs import TorchEnvs
from tests.runners import played, problem_for, runner_for
from tests.test_recordable import Checked, Recording
from tests.training import ENVIRONMENT

SMALL = ("backend=device", "device=cpu", "precision=float64", "ppo.num_envs=8", "ppo.num_steps=64")
CASES = {
    "cartpole": ("env=cartpole",),
    "normalized": ("env=cartpole", "ppo.norm_obs=true", "ppo.norm_reward=true", "env.observe=[0,2]"),
    "gru": ("env=cartpole", "network=gru"),
    "pendulum": ("env=pendulum", "ppo.num_steps=256", "ppo.norm_obs=true", "env.rescale_actions=true"),
    "mountain_car": ("env=mountain_car_continuous", "ppo.num_steps=1024", "ppo.num_envs=2"),
    "acrobot": ("env=acrobot", "ppo.num_steps=512"),
    "proof_of_memory": ("env=proof_of_memory", "network=lstm"),
    "rnd": ("env=deep_sea", "algorithm=rnd", "algorithm.warm_up_iterations=2", "algorithm.features=16"),
}
TRAINED = ("normalized", "gru", "pendulum", "rnd")
"""Cases whose trainings are compared: tests/test_dynamics.py compares every environment step by step."""


@functools.cache
def trained_by(framework: str, case: str, *words: str) -> tuple[Arrays, list[Metrics], list[Episode]]:
    """What two iterations leave behind; the environments restart between them."""
    config = load_config([*SMALL, *CASES[case], f"framework={framework}", *words])
    runner = config.framework.runner(config.training_spec(make_env(config.backend, config.task)))
    return played(runner, 3, 2, restart_after=1)


@pytest.mark.parametrize(
    ("framework", "case"),
    [
        *(("torch_eager", case) for case in ("normalized", "pendulum")),
        *(pytest.param("torch_eager", case, marks=pytest.mark.slow) for case in ("gru", "rnd")),
        pytest.param("torch_compile", "normalized", marks=pytest.mark.slow),
    ],
)
def test_a_training_is_that_of_the_jax_program(framework: str, case: str) -> None:
    expected, expected_rows, expected_episodes = trained_by("jax_xla", case)
    found, measured, episodes = trained_by(framework, case)
    assert [each[:2] + each[3:] for each in episodes] == [each[:2] + each[3:] for each in expected_episodes]
    returns, expected_returns = (
        [each.episode_return for each in each_list] for each_list in (episodes, expected_episodes)
    )
    np.testing.assert_allclose(returns, expected_returns, rtol=1e-7)  # Pendulum magnifies differences
    assert len(episodes) >= 4
    assert [[*row] for row in measured] == [[*row] for row in expected_rows]
    numbers, expected_numbers = ([[*row.values()] for row in each] for each in (measured, expected_rows))
    np.testing.assert_allclose(numbers, expected_numbers, rtol=1e-8, atol=1e-10)
    assert {name for name in found if not name.startswith("envs.carry.")} == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.slow
def test_jax_is_not_needed() -> None:
    program = (
        "import sys; sys.modules['jax'] = None\n"
        "from ppo_bench.configuration.load import load_config\n"
        "from ppo_bench.envs.host import to_vector_env\n"
        "from ppo_bench.envs.make import make_env\n"
        "config = load_config(['backend=device', 'framework=torch_eager', 'env=pendulum', 'device=cpu'])\n"
        "config.require()\n"
        "runner = config.framework.runner(config.training_spec(make_env(config.backend, config.task)))\n"
        "runner.iterate(runner.init(1))\n"
        "to_vector_env(make_env(config.backend, config.task)).reset(range(config.ppo.num_envs))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Nested(CartPole):
    """CartPole whose state is a dictionary."""

    def reset(self, words: Array) -> Any:
        return {"state": super().reset(words)}

    def observe(self, state: Any) -> Array:
        return super().observe(state["state"])


def test_a_state_that_is_no_named_tuple_is_refused() -> None:
    runner = runner_for("torch_eager", problem_for(DynamicsEnv(Nested(), 4), 4, []))
    with pytest.raises(ConfigError, match="Nested: the state of a PortableDynamics is a NamedTuple of arrays"):
        runner.init(1)


class Explodes(CartPole):
    """CartPole whose reward is infinite while the cart is on the right."""

    def step(self, state: Any, actions: Array) -> tuple[Any, Array, Array]:
        moved, reward, terminated = super().step(state, actions)
        return moved, self.xp.where(moved.x > 0, self.xp.inf, reward), terminated


def test_pytorch_steps_ones_own_dynamics_if_they_are_portable() -> None:
    words = ["env.id=tests.test_torch_envs:Explodes", "backend=device", "framework=torch_eager", "device=cpu"]
    load_config(words).require()
    with pytest.raises(ConfigError, match="cannot step tests"):
        load_config(["env.id=tests.test_jax_envs:Counter", *words[1:]]).require()


def test_a_reward_out_of_range_is_named() -> None:
    runner = runner_for("torch_eager", problem_for(DynamicsEnv(Explodes(), 4), 4, []))
    with pytest.raises(RunError, match="a reward of inf"):
        runner.iterate(runner.init(1))


@pytest.mark.parametrize("case", TRAINED)
def test_a_rollout_that_is_recorded_is_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that a GPU records, called each time: its tensors stay, and it trains what the others train."""
    checked: list[Checked] = []

    def replayed(function: Any, changed: Any) -> Checked:
        checked.append(Checked(function, contextlib.nullcontext))  # dynamics call NumPy on a CPU
        return checked[-1]

    monkeypatch.setattr(torch_envs, "GraphedCallable", replayed)
    expected, _, expected_episodes = trained_by("torch_eager", case)
    config = load_config([*SMALL, *CASES[case], "framework=torch_eager"])
    spec = config.training_spec(make_env(config.backend, config.task))
    learner = torch_runner.TorchLearner(spec, None)
    learner.uses_cuda_graphs = True
    envs = TorchEnvs(spec, learner)
    graphed = torch_envs.GraphedRollout(step_by_step(learner, envs, spec.ppo.num_steps))
    runner = HostRunner(spec, envs, learner, graphed)
    found, _, finished = played(runner, 3, 2, restart_after=1)
    assert finished == expected_episodes
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert [each.calls for each in checked] == [2 + spec.algorithm.num_warmup_rollouts]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_rollout_that_a_gpu_replays_is_that_of_single_launches(case: str) -> None:
    words = "device=cuda", "framework.deterministic=true"
    plain, *recorded = (
        trained_by("torch_compile", case, *words, f"framework.cudagraphs={x}") for x in ("false", "true", "update")
    )
    for replayed in recorded:
        assert plain[2] == replayed[2]
        for name, array in plain[0].items():
            np.testing.assert_allclose(replayed[0][name], array, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_a_step_can_be_recorded_on_a_gpu(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the device or crosses to the host; shown on a device without data."""
    monkeypatch.setattr(torch_runner, "pick_device", lambda *_: torch.device("meta"))
    config = load_config([*SMALL, *CASES[case], "framework=torch_eager"])
    spec = config.training_spec(make_env(config.backend, config.task))
    learner: Any = torch_runner.TorchLearner(spec, None)
    envs = TorchEnvs(spec, learner)
    statistics = normalization_array_specs(spec.env.observation_space.shape)
    state = envs.reset({each.name: each.default() for each in statistics}, 1, 0)
    actions = torch.empty_like(learner._rollout_buffer["actions"][0])
    with Recording():
        state, rollout = envs.begin_rollout(state)
        for t in range(3):
            state, rollout = envs.step(state, rollout, t, actions)
    assert {array.device.type for array in (*state.arrays.values(), *rollout.values())} == {"meta"}
