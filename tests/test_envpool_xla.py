"""EnvPool inside a JAX program: it plays what EnvPool plays on the host, and a new pool gets a new program."""

from __future__ import annotations

import gc
import subprocess
from pathlib import Path
from typing import Any

import envpool
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.envs.base import Atari, EnvStep, GraphEnv, Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolBackend, EnvPoolEnv, make_env_step
from ppo_bench.envs.envpool_xla import EnvPoolXlaBackend
from ppo_bench.envs.host import JaxVectorEnv
from ppo_bench.envs.random_play import random_actions
from ppo_bench.runners.program_runner import ProgramRunner
from tests.processes import TRAIN
from tests.runners import problem_for, runner_for
from tests.training import ENVIRONMENT

CARTPOLE = Task("cartpole", "CartPole-v1", 4)
TASKS = {
    "cartpole": CARTPOLE,
    "hopper": Task("hopper", "Hopper-v4", 2),
    "breakout": Task("breakout", "Breakout-v5", 2, Atari(episodic_life=True, reward_clip=True)),
    "fish_swim": Task("fish_swim", "FishSwim-v1", 2, kwargs={"max_episode_steps": 100}),  # of dm_control: a dictionary
    "lunar_lander": Task("lunar_lander", "LunarLander-v3", 2),
    "memory": Task("memory", "MiniGrid-MemoryS7-v0", 2),  # a grid of categories
    "taxi": Task("taxi", "Taxi-v3", 2),  # choices
}


SHORT = ["network=mlp", "network.hidden_sizes=[8]", "ppo.num_steps=8", "ppo.num_minibatches=1", "ppo.update_epochs=1"]
"""A program that is soon compiled and run."""


def to_vector_env(task: Task) -> VectorEnv:
    return EnvPoolBackend("envpool", 1).make(task)


def in_program(task: Task) -> GraphEnv:
    return EnvPoolXlaBackend("envpool_xla", 1).make(task)


def actions_for(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    space: Any = env.action_space
    if hasattr(space, "n"):
        return rng.integers(0, space.n, env.num_envs)
    return rng.uniform(-1.0, 1.0, (env.num_envs, *space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_those_of_envpool_on_the_host(name: str) -> None:
    host, view = to_vector_env(TASKS[name]), JaxVectorEnv(in_program(TASKS[name]))
    rng = np.random.default_rng(1)
    seeds = [1, 2, 3, 4][: host.num_envs]
    assert_array_equal(view.reset(seeds).obs, host.reset(seeds).obs)
    ends = lost_lives = 0
    for t in range(300):
        actions = actions_for(host, rng)
        found, expected = view.step(actions), host.step(actions)
        for field, array in expected._asdict().items():
            if array is None:
                assert getattr(found, field) is None, field
                continue
            assert getattr(found, field).dtype == array.dtype, field
            assert_array_equal(getattr(found, field), array, f"step {t}, {field}")
        ends += int((expected.terminated | expected.truncated).sum())
        lost_lives += int((expected.terminated & ~expected.episode_over).sum())
    assert ends > 0
    assert (lost_lives > 0) == (name == "breakout")
    host.close()
    view.close()


def address(state: Any) -> int:
    handle, _ = state
    return int.from_bytes(np.asarray(handle).tobytes(), "little")


def test_a_rebuilt_pool_never_meets_the_program_of_an_earlier_one() -> None:
    env = in_program(CARTPOLE)
    runner: Any = runner_for("jax_xla", problem_for(env, 100, SHORT))
    state = runner.init(1)
    pools, addresses, programs = [], [], []
    for iteration in (1, 2):
        pools.append(env._envs.pool)  # type: ignore[attr-defined] # kept, so that no other gets its address
        addresses.append(address(state.envs.state))
        programs.append(runner.iteration_program(state))
        told = {"learning_rate": np.float32(0)}, np.int32(iteration)
        text = programs[-1].lower(state.train_state, state.envs, np.int32(1), *told).as_text()
        assert [str(a) in text for a in addresses] == [False] * (iteration - 1) + [True]
        state = runner.restart_envs(runner.iterate(state)[0])
    assert len(set(addresses)) == len(set(map(id, programs))) == 2
    runner.close()


def test_a_pool_is_closed_once_no_program_steps_it() -> None:
    spec = problem_for(in_program(CARTPOLE), 100, ["ppo.num_steps=2048"])
    runner = ProgramRunner(spec, spec.env, iterations_per_call=8)  # type: ignore[arg-type]
    state, _, _ = runner.iterate(runner.init(1))
    last: Any = state.pending[-1][0].value_mask
    assert not last.is_ready()  # the device has run ahead, and is still at it
    runner.close()
    assert last.is_ready()


def test_pools_rebuilt_in_memory_given_back_play_from_their_own_seeds() -> None:
    view = JaxVectorEnv(in_program(CARTPOLE))
    plays = []
    for round_ in range(4):
        first = view.reset([round_ % 2 + env for env in range(4)]).obs
        plays.append(np.stack([first, *(view.step(np.full(4, t % 2)).obs for t in range(60))]))
        gc.collect()
    view.close()
    for round_, play in enumerate(plays):
        assert_array_equal(play, plays[round_ % 2])
    assert not np.array_equal(plays[0], plays[1])


@pytest.mark.slow
def test_programs_of_a_pool_are_not_kept_for_other_processes(tmp_path: Path) -> None:
    """They hold its address; those of environments in JAX are kept."""
    kept = {}
    for backend in ("device", "envpool_xla"):
        cache = tmp_path / backend
        command = [*TRAIN, "framework=jax_xla", f"backend={backend}", "total_timesteps=512"]
        options = [f"framework.compile_cache={cache}", f"outputs={tmp_path}/outputs"]
        subprocess.run([*command, *options], check=True, capture_output=True, env=ENVIRONMENT)
        kept[backend] = list(cache.rglob("jit_iterate*"))
    assert kept["device"]
    assert not kept["envpool_xla"]


STEPPED = [
    Task("cartpole", "CartPole-v1", 3),
    Task("hopper", "Hopper-v4", 3),
    Task("breakout", "Breakout-v5", 3, Atari(episodic_life=True, reward_clip=True)),
    Task("walker_walk", "WalkerWalk-v1", 3),  # a dictionary of observations
    Task("memory", "MiniGrid-MemoryS7-v0", 3),  # of categories among them
    Task("taxi", "Taxi-v3", 3),  # choices
    Task("maze", "Maze-v0", 3),  # dictionaries within a dictionary
    Task("lunar_lander", "LunarLander-v3", 3),
    Task("bipedal_walker", "BipedalWalker-v3", 3),  # whose action_array_spec lacks the number of environments
]


def assert_same(mine: EnvStep, theirs: EnvStep) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("task", STEPPED, ids=lambda task: task.name)
def test_a_step_is_that_of_the_pool(task: Task) -> None:
    env = EnvPoolEnv(task, num_threads=1)
    first = env.reset([5, 6, 7]).obs
    pool = envpool.make_gymnasium(task.id, env_seed=[5, 6, 7], **env._options)
    obs, _ = pool.reset()
    resets, ends = np.zeros(3, bool), 0
    assert_array_equal(first, env.layout.to_array(obs))
    rng = np.random.default_rng(1)
    for _ in range(300):
        actions = random_actions(env, rng)
        theirs = make_env_step(env.layout, resets, *pool.step(actions))
        assert_same(env.step(actions), theirs)
        resets = theirs.terminated | theirs.truncated
        ends += int(resets.sum())
    assert ends > 0 or task.name in ("walker_walk", "bipedal_walker")  # which last for 1,000 and 1,600 steps
    pool.close()
    env.close()
