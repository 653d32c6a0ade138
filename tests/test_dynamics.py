"""The same dynamics in NumPy, PyTorch and JAX: equal trajectories, to the last bit on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.envs.base import EnvStep
from ppo_bench.envs.deep_sea import DeepSea
from ppo_bench.envs.dynamics.acrobot import Acrobot
from ppo_bench.envs.dynamics.base import Autoreset, PortableDynamics
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.mountain_car import MountainCar, MountainCarContinuous
from ppo_bench.envs.dynamics.pendulum import Pendulum
from ppo_bench.envs.proof_of_memory import ProofOfMemory

NUM_ENVS, NUM_STEPS = 8, 1250
ALL = (CartPole(), Acrobot(), MountainCar(), MountainCarContinuous(), Pendulum(), ProofOfMemory(), DeepSea(10))


def names(dynamics: Any) -> str:
    return type(dynamics).__name__


def actions_of(dynamics: Any) -> np.ndarray:
    """Actions `[T, N]` or `[T, N, A]`: random, some beyond the bounds, and then the same ones for long."""
    rng, space = np.random.default_rng(5), dynamics.action_space
    if isinstance(space, spaces.Discrete):
        drawn = rng.integers(0, space.n, (NUM_STEPS, NUM_ENVS))
    else:
        drawn = rng.normal(0.0, float(space.high[0]), (NUM_STEPS, NUM_ENVS, 1)).astype(np.float32)
    drawn[NUM_STEPS // 2 :, ::2] = drawn[NUM_STEPS // 2, ::2]
    return drawn


def in_numpy(dynamics: Any, actions: np.ndarray) -> Iterator[EnvStep]:
    env = Autoreset(np, dynamics)
    state, _ = env.init(np.arange(NUM_ENVS, dtype=np.int32))
    for row in actions:
        state, step = env.step(state, row)
        yield step


def in_torch(dynamics: Any, actions: np.ndarray, compiled: bool) -> Iterator[EnvStep]:
    env = Autoreset(torch, dynamics.with_xp(torch))
    torch.compiler.reset()
    step_of = torch.compile(env.step, fullgraph=True, dynamic=False) if compiled else env.step
    state, _ = env.init(torch.arange(NUM_ENVS, dtype=torch.int32))
    state = env.draw_reset_words(state, NUM_STEPS) if compiled else state
    for row in actions:
        state, step = step_of(state, torch.from_numpy(row))
        yield step.map(lambda array: array.numpy())


def in_jax(dynamics: Any, actions: np.ndarray) -> Iterator[EnvStep]:
    with jax.enable_x64(True):
        env = Autoreset(jnp, dynamics.with_xp(jnp))
        state, _ = env.init(jnp.arange(NUM_ENVS, dtype=jnp.int32))
        step_of = jax.jit(env.step)
        for row in actions:
            state, step = step_of(state, row)
            yield step.map(np.asarray)


def test_constants_of_classes_go_to_the_device_too() -> None:
    class WithTable(PortableDynamics):
        table = np.arange(3)

    assert isinstance(WithTable().with_xp(torch, torch.asarray).table, torch.Tensor)
    assert isinstance(WithTable.table, np.ndarray)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("dynamics", ALL, ids=names)
def test_trajectories_are_equal_to_the_last_bit(dynamics: PortableDynamics, library: str) -> None:
    actions = actions_of(dynamics)
    compare(dynamics, actions, in_jax(dynamics, actions) if library == "jax" else in_torch(dynamics, actions, False))


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", [Pendulum(), ProofOfMemory()], ids=names)
def test_compiled_by_pytorch_they_are_equal_too(dynamics: PortableDynamics) -> None:
    """Those with sines and forces, and with random numbers; test_torch_envs.py compiles CartPole."""
    actions = actions_of(dynamics)
    compare(dynamics, actions, in_torch(dynamics, actions, True))


def compare(dynamics: PortableDynamics, actions: np.ndarray, others: Iterator[EnvStep]) -> None:
    """Require that NumPy takes the same steps as `others`, among them ends of episodes."""
    ends = limits = 0
    for t, (one, other) in enumerate(zip(in_numpy(dynamics, actions), others, strict=True)):
        for name, expected, found in zip(EnvStep._fields[:6], one, other, strict=False):
            assert_array_equal(found, expected, err_msg=f"{name} in step {t}")
            assert np.asarray(found).dtype == np.asarray(expected).dtype, name
        ends, limits = ends + int(one.terminated.sum()), limits + int(one.truncated.sum())
    assert ends + limits >= NUM_ENVS
