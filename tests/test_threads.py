"""Threads of PyTorch: as many as pay off for the arrays of a run, whatever an earlier run in the process had."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.spec import Mlp, NatureCnn
from ppo_bench.runners.torch_device import DEFAULT_THREADS, set_threads, threads_for

FLAT, FRAMES, CHOICES = Box(-1, 1, (400,), np.float32), Box(0, 255, (84, 84, 4), np.uint8), Discrete(2)
NARROW = Mlp([64, 64], "tanh").build(FLAT, CHOICES)
CNN = NatureCnn().build(FRAMES, CHOICES)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_convolutions_and_wide_layers_have_several_threads() -> None:
    middling, wide = (Mlp([units, units], "tanh").build(FLAT, CHOICES) for units in (256, 512))
    assert [threads_for(network.parameters, None, most=8) for network in (NARROW, middling, CNN, wide)] == [1, 1, 8, 8]
    assert [threads_for(network.parameters, 3, most=8) for network in (NARROW, CNN, wide)] == [3, 3, 3]


def test_a_run_after_one_with_a_single_thread_has_the_default_again() -> None:
    """A notebook may train on CartPole and then on Pong."""
    words = ["framework=torch_eager", "backend=envpool", "device=cpu"]
    counts = []
    for env in ("cartpole", "pong", "cartpole"):
        config = load_config([f"env={env}", *words])
        made = make_env(config.backend, config.task)
        try:
            runner = config.framework.runner(config.training_spec(made))
        finally:
            made.close()
        assert runner.execution["threads"] == torch.get_num_threads()  # what run.json says
        counts.append(torch.get_num_threads())
    assert counts == [1, DEFAULT_THREADS, 1]


def test_a_policy_leaves_the_threads_of_the_training_around_it() -> None:
    weights = initial_weights(NARROW.parameters, 1)
    framework = load_config(["framework=torch_eager"]).framework
    arrays = {f"params.{name}": array for name, array in weights.items()}
    policy = framework.policy(NARROW, arrays, "float32", "cpu")
    set_threads(2)
    policy(np.zeros((3, 400), np.float32), np.zeros(3, bool), {})
    assert torch.get_num_threads() == 2
