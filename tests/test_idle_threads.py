"""Threads of PyTorch leave their cores to others soon after an operation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import sys, time
from ppo_bench.tuning.idle_threads import let_idle_threads_sleep

if sys.argv[1] == "sleep":
    let_idle_threads_sleep()
import torch

torch.set_num_threads(2)
numbers = torch.ones(600, 600)
for _ in range(9):
    torch.exp(numbers)
    before = time.process_time()
    time.sleep(0.1)
    print(time.process_time() - before)
"""


def seconds_spun(how: str, **said: str) -> list[float]:
    """CPU seconds of each of nine times that a process waits for 0.1 s after an operation of two threads."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    command = [sys.executable, "-c", PROGRAM, how]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment | said)
    return [float(line) for line in run.stdout.split()]


STEPPED = """
import os, sys, time
import numpy as np
import torch
from ppo_bench.envs.base import Task
from ppo_bench.envs.envpool import EnvPoolEnv

torch.set_num_threads(2)
env = EnvPoolEnv(Task("cartpole", "CartPole-v1", 4), int(sys.argv[1]))
env.reset(range(4))
numbers = torch.ones(600, 600)


def threads():
    return set(os.listdir("/proc/self/task"))


for _ in range(3):
    env.step(np.zeros(4, np.int64))
    before = threads()
    torch.exp(numbers)
    begun = threads() - before
    env.step(np.zeros(4, np.int64))
    limit = time.monotonic() + 9
    while begun & threads() and time.monotonic() < limit:  # a thread that has ended may be listed a little longer
        time.sleep(0.001)
    print(len(begun), len(begun & threads()))
"""


@pytest.fixture(scope="module")
def as_they_come() -> float:
    """Seconds that threads spin which nothing has been said to."""
    seconds = statistics.median(seconds_spun("leave"))
    if seconds < 0.003:
        pytest.skip(f"threads spin for {seconds:.4f} s as they come: not GNU OpenMP, or one core")
    return seconds


def test_idle_threads_sleep(as_they_come: float) -> None:
    assert min(seconds_spun("sleep")) < as_they_come / 2


@pytest.mark.parametrize("said", [{"GOMP_SPINCOUNT": "300000"}, {"OMP_WAIT_POLICY": "active"}])
def test_what_the_user_says_of_waiting_holds(said: dict[str, str], as_they_come: float) -> None:
    assert max(seconds_spun("sleep", **said)) > as_they_come / 2


@pytest.mark.parametrize(
    ("num_threads", "begun_and_left"),
    [(1, ["0 0", "0 0", "0 0"]), (2, ["1 0", "1 0", "1 0"])],  # a pool of one thread has a core already: the caller's
)
def test_a_pool_ends_idle_threads_before_it_steps(num_threads: int, begun_and_left: list[str]) -> None:
    run = subprocess.run([sys.executable, "-c", STEPPED, str(num_threads)], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == begun_and_left


MULTIPLIED = """
import os
import torch
from ppo_bench.tuning.idle_threads import idle_threads_ender, products_by_all_threads

torch.set_num_threads(2)
end_idle_threads = idle_threads_ender()
numbers = torch.rand(600, 600)


def threads_of_a_product():
    before = set(os.listdir("/proc/self/task"))
    product = numbers @ numbers
    return product, len(set(os.listdir("/proc/self/task")) - before)


end_idle_threads()
alone, one = threads_of_a_product()
with products_by_all_threads():
    together, two = threads_of_a_product()
assert torch.allclose(together, alone)
end_idle_threads()
print(one, two, threads_of_a_product()[1])
"""


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="products are not those of MKL")
def test_products_begin_no_threads_where_these_are_ended() -> None:
    run = subprocess.run([sys.executable, "-c", MULTIPLIED], check=True, capture_output=True, text=True)
    assert run.stdout == "0 1 0\n"
