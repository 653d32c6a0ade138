"""Memory that PyTorch frees stays with the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from ppo_bench.tuning.freed_memory import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None
torch.set_num_threads(1)

def work():
    for megabytes in (29, 29, 13, 40, 7):
        torch.ones(megabytes * 2**18)
        [torch.ones(9 * 2**18) for _ in range(4)]

for _ in range(20):  # the arrangement of blocks settles
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> tuple[str, int]:
    environment = os.environ | {"THP_MEM_ALLOC_ENABLE": "0"}  # huge pages are 512 for one fault
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True, env=environment
    )
    kept, count = run.stdout.split()
    return kept, int(count)


@pytest.mark.slow
def test_memory_is_taken_from_the_system_once() -> None:
    kept, count = faults("keep")
    if kept == "False":
        pytest.skip("the C library is not glibc")
    assert count < 1_000
    assert faults("leave")[1] > 10_000
