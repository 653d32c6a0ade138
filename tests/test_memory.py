"""What PyTorch frees stays with the process, and large tensors lie in huge pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys, torch
from ppo_bench.tuning.memory import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None
torch.set_num_threads(1)

def work():
    for megabytes in (29, 29, 13, 40, 7):
        torch.ones(megabytes * 2**18)
        [torch.ones(9 * 2**18) for _ in range(4)]

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


def test_memory_is_taken_from_the_system_once() -> None:
    kept, count = faults("keep")
    if kept == "False":
        pytest.skip("the C library is not glibc")
    assert count < 1_000
    assert faults("leave")[1] > 10_000


PAGES = """
import sys
from pathlib import Path
from ppo_bench.commands.bench.handicaps import take_small_pages
from ppo_bench.tuning.memory import take_huge_pages

take_huge_pages()
import torch

if sys.argv[1:] == ["undone"]:
    take_small_pages()

def huge_kilobytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))

before = huge_kilobytes()
tensor = torch.ones(16 * 2**20)
print(huge_kilobytes() - before)
"""


def huge_kilobytes(*how: str, **said: str) -> int:
    """What of a tensor of 64 MiB lies in huge pages."""
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | said
    command = [sys.executable, "-c", PAGES, *how]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(run.stdout)


def test_large_tensors_lie_in_huge_pages_unless_the_user_says_otherwise() -> None:
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not mode.exists() or "[madvise]" not in mode.read_text():
        pytest.skip("this system does not leave huge pages to programs")
    assert huge_kilobytes() > 32 * 1024
    assert huge_kilobytes(THP_MEM_ALLOC_ENABLE="0") == 0
    assert huge_kilobytes("undone") == 0  # as the ladder's lower steps have it
