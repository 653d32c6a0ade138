"""Threads of PyTorch: as many as pay off for the arrays of a run, whatever an earlier run in the process had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import Task
from ppo_bench.envs.envpool import EnvPoolBackend
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


CARTPOLE = Task("cartpole", "CartPole-v1", 4)


def test_a_single_thread_follows_its_caller_to_whatever_core_it_is_on() -> None:
    env = EnvPoolBackend("envpool", num_threads=0).make(CARTPOLE)
    cores = os.sched_getaffinity(0)
    others = affinities(threads())
    env.reset([1, 2, 3, 4])
    env.step(np.zeros(4, np.int32))  # by when those that only help to start have ended
    pool = threads() - set(others)
    assert pool
    try:
        for core in [*cores, *cores]:
            os.sched_setaffinity(0, {core})
            env.step(np.zeros(4, np.int32))
            assert affinities(pool) == {thread: {core} for thread in pool}
    finally:
        os.sched_setaffinity(0, cores)
        env.close()
    after = affinities(set(others))
    assert after == {thread: others[thread] for thread in after}


def affinities(threads: set[int]) -> dict[int, set[int]]:
    """The cores of each thread that has not ended."""
    found = {}
    for thread in threads:
        with suppress(ProcessLookupError):
            found[thread] = os.sched_getaffinity(thread)
    return found


def threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


@pytest.mark.parametrize(
    ("task", "asked", "used"),
    [
        (Task("hopper", "Hopper-v4", 1), 0, 1),
        (CARTPOLE, 0, 1),
        (CARTPOLE, 2, 2),
        (Task("cartpole", "CartPole-v1", 65), 0, 0),  # 0: EnvPool's own choice
        (Task("hopper", "Hopper-v4", 2), 0, 0),
        (Task("dmc_cartpole_balance", "CartpoleBalance-v1", 4), 0, 0),
    ],
)
def test_one_thread_steps_what_takes_less_than_waking_a_second(task: Task, asked: int, used: int) -> None:
    env = EnvPoolBackend("envpool", asked).make(task)
    env.reset(range(task.num_envs))
    assert env.pool.config["num_threads"] == used
    env.close()
