"""How many threads step a pool, and that a single one keeps to its caller's core."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import pytest

from ppo_bench.envs.base import Task
from ppo_bench.envs.envpool import EnvPoolBackend

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
