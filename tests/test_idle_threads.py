"""Idle threads of PyTorch release their cores soon after an operation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def as_they_come() -> float:
    """Seconds that threads spin which nothing has been said to."""
    seconds = statistics.median(seconds_spun("leave"))
    if seconds < 0.003:
        pytest.skip(f"threads spin for {seconds:.4f} s as they come: not GNU OpenMP, or one core")
    return seconds


def test_idle_threads_sleep(as_they_come: float) -> None:
    assert min(seconds_spun("sleep")) < as_they_come / 2


@pytest.mark.parametrize("said", [{"OMP_WAIT_POLICY": "active"}])
def test_what_the_user_says_of_waiting_holds(said: dict[str, str], as_they_come: float) -> None:
    assert max(seconds_spun("sleep", **said)) > as_they_come / 2
