"""Several seeds in one program: each is trained as it would be alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_bench.common.errors import FailedRuns, RunError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv
from ppo_bench.envs.dynamics.cartpole import CartPole, CartPoleState
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.make import make_env
from ppo_bench.runners.jax_seeds import JaxSeedsRunner
from ppo_bench.runners.program_runner import ProgramRunner
from tests.runners import assert_each_is_as_alone, problem_for
from tests.test_seeds_folders import SEEDS, TOGETHER

pytestmark = pytest.mark.slow

SMALL = ["ppo.num_envs=8", "ppo.num_steps=16", "ppo.num_minibatches=2", "total_timesteps=1024"]
NORMALIZED = ["precision=float64", "ppo.norm_obs=true", "ppo.norm_reward=true"]


def test_each_seed_learns_what_it_learns_alone() -> None:
    """Two at a time on a core, the last of three by itself."""
    env = DynamicsEnv(CartPole(), 8)
    spec = problem_for(env, 4, NORMALIZED)
    alone = dict.fromkeys(range(6), ProgramRunner(spec))
    assert_each_is_as_alone(JaxSeedsRunner(spec), range(5, 11), alone)


@pytest.mark.parametrize(("num_seeds", "devices", "rows"), [(1, 1, 1), (3, 2, 4), (4, 2, 4)])
def test_seeds_are_divided_among_devices_in_equal_parts(num_seeds: int, devices: int, rows: int) -> None:
    runner = JaxSeedsRunner(problem_for(DynamicsEnv(CartPole(), 4), 4, []))
    state = runner.init(range(num_seeds))
    assert [int(arrays["seed"]) for arrays in runner.export(state)] == list(range(num_seeds))
    for array in (state.train_state.params["actor.0.weight"], state.envs.arrays["envs.obs"]):
        assert (len(array.devices()), len(array)) == (devices, rows)
        assert {len(part.data) for part in array.addressable_shards} == {rows // devices}


DEVICES = """
import sys
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.distributed import build_runner

config = load_config(sys.argv[1:])
runner, *_ = build_runner(config, lambda spec: config.framework.seeds_runner(spec, []))
print(runner.execution["devices"])
"""


@pytest.mark.parametrize(
    ("env", "said", "devices"),
    [
        ("minatar_breakout", {}, len(os.sched_getaffinity(0))),  # JAX begins as its game is made
        ("cartpole", {"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ("cartpole", {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, 4),
    ],
)
def test_every_core_is_a_device_unless_the_user_says_how_many(env: str, said: dict[str, str], devices: int) -> None:
    command = [sys.executable, "-c", DEVICES, *TOGETHER, f"env={env}", "device=cpu"]
    unsaid = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=unsaid | said)
    assert run.stdout == f"{devices}\n"


def test_a_restored_state_goes_on_as_the_one_it_came_from() -> None:
    runner = JaxSeedsRunner(problem_for(DynamicsEnv(CartPole(), 4), 9, NORMALIZED))
    state, _ = runner.iterate(runner.init(SEEDS))
    exported = runner.export(state)
    twin = JaxSeedsRunner(problem_for(DynamicsEnv(CartPole(), 4), 9, NORMALIZED))
    restarted, _ = runner.iterate(runner.restart_envs(state))
    restored, _ = twin.iterate(twin.restore(exported))
    for a, b in zip(runner.export(restarted), twin.export(restored), strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("env", ["env=tic_tac_toe", "env=deep_sea"])
def test_games_and_rnd_learn_in_one_program_what_they_learn_alone(env: str) -> None:
    config = load_config([env, "backend=device", "framework=jax_xla", "precision=float64", *SMALL])
    envs = make_env(config.backend, config.task)
    assert isinstance(envs, GraphEnv)
    spec = replace(config.training_spec(envs), device="cpu")
    assert_each_is_as_alone(JaxSeedsRunner(spec), SEEDS, {1: ProgramRunner(spec)})


class BreaksToTheRight(CartPole):
    """CartPoles of which the third gives a reward that is no number where the cart is far to the right."""

    def step(self, state: CartPoleState, actions: jax.Array) -> tuple[CartPoleState, jax.Array, jax.Array]:
        state, rewards, ends = super().step(state, actions)
        return state, rewards.at[2].set(jnp.where(state.x[2] > 0.15, jnp.nan, rewards[2])), ends


def test_rewards_that_are_no_numbers_fail_their_runs_alone() -> None:
    seeds = range(5, 11)
    spec = problem_for(DynamicsEnv(BreaksToTheRight(), 4), 4, [])
    failing = set()
    alone = ProgramRunner(spec)
    for position, seed in enumerate(seeds):
        with suppress(RunError):
            alone.iterate(alone.init(seed))
            continue
        failing.add(position)
    assert 0 < len(failing) < 6
    together = JaxSeedsRunner(spec)
    with pytest.raises(FailedRuns) as raised:
        together.iterate(together.init(seeds))
    said = "environment 2 gave a reward of nan, which is not finite"
    assert raised.value.reasons == dict.fromkeys(failing, said)
