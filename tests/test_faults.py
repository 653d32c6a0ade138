"""Kills, damaged files, configurations at random and full disks, a few of each; `make soak` runs the whole campaign."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.paths import FRAMEWORKS
from tests import faults
from tests.faults import command, finish, kill_and_restart, resume_damaged, started_run
from tests.mutations import SMALL, mutated, run_mutated
from tests.processes import count_rows, small_disk, started, wait_until
from tests.training import ENVIRONMENT, learnt, rows, run_folder, snapshot, trained

pytestmark = pytest.mark.slow

RUN = ["env=cartpole", "device=cpu", "total_timesteps=20480", "checkpoint.every_iterations=5"]
RND = ["algorithm=rnd", "algorithm.features=16", "algorithm.warm_up_iterations=2"]
POLES = ["env.id=tests.tensor_envs:Poles"]
SHORT = "total_timesteps=10240"  # of 20 iterations, the first kill is before the twelfth
KILLED = [
    (1, [SHORT, "backend=envpool", "framework=torch_compile"]),
    (1, [SHORT, "backend=device", "framework=jax_xla", *RND, "network=lstm"]),
    (1, [SHORT, "backend=tensors", *POLES, "network=gru", "ppo.norm_obs=true", "ppo.norm_reward=true"]),
    (3, ["backend=gymnasium", *RND, "network=gru", "ppo.update_epochs=1"]),  # the third is one of the start
]
"""How often each run is killed, and its words."""
DAMAGES: range | list[int] = range(6)
CONFIGURATIONS: range | list[int] = [0, 1, 36, 73]  # the last two run
if "SOAK" in os.environ:
    CARTPOLE = ["total_timesteps=245760", "checkpoint.every_iterations=20"]
    IN_JAX = ["total_timesteps=4915200", "checkpoint.every_iterations=400"]  # ten times as fast
    BREAKOUT = ["env=breakout", "total_timesteps=36864", "checkpoint.every_iterations=1"]
    KILLED = [
        *((20, [*CARTPOLE, f"backend={b}", f"framework={f}"]) for b in ("gymnasium", "envpool") for f in FRAMEWORKS),
        (20, [*IN_JAX, "backend=device", "framework=jax_xla"]),
        *((20, [*BREAKOUT, "backend=envpool", f"framework={f}"]) for f in FRAMEWORKS),
    ]
    DAMAGES, CONFIGURATIONS = range(100), range(200)


@pytest.mark.parametrize(("kills", "words"), KILLED)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    kills: int, words: list[str], tmp_path: Path
) -> None:
    run = [*RUN, *words]
    killed = [*run, f"outputs={tmp_path / 'killed'}"]
    kill_and_restart(killed, kills, random.Random(str(words)), 2.0 if "env=breakout" in words else 0.2)
    assert learnt(trained(tmp_path / "whole", *run)) == learnt(run_folder(*killed))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Any]:
    """A finished run and one that was stopped, and what the finished one learnt."""
    outputs = tmp_path_factory.mktemp("originals")
    whole = trained(outputs / "whole", *RUN)
    stopped = started_run([*RUN, f"outputs={outputs / 'stopped'}"], 22)
    return [whole, stopped], learnt(whole)


@pytest.mark.parametrize("seed", DAMAGES)
def test_a_damaged_run_is_refused_untouched_or_ends_as_if_undamaged(
    seed: int, originals: tuple[list[Path], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def finish_here(overrides: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(overrides, exit_code(main, overrides), *capfd.readouterr())

    folders, reference = originals
    resume_damaged(folders[seed % 2], reference, RUN, tmp_path, random.Random(seed), finish_here)


@pytest.mark.parametrize("seed", CONFIGURATIONS)
def test_a_configuration_at_random_is_refused_in_one_line_or_runs(seed: int, tmp_path: Path) -> None:
    run_mutated(mutated(random.Random(1_000 + seed)), tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB."""
    with small_disk("600k", tmp_path / "disk") as disk:
        yield disk


def test_on_a_full_disk_a_run_ends_with_one_line_and_goes_on_when_there_is_room(
    disk: Path, originals: tuple[list[Path], Any]
) -> None:
    run = [*RUN, f"outputs={disk}"]
    folder = run_folder(*run)
    other_file = disk / "other"
    other_file.write_bytes(bytes(400_000))  # room for a checkpoint or two
    full = finish(run)
    assert full.returncode == 1
    last = full.stderr.splitlines()[-1]
    assert last.startswith(f"ppo_bench: No space left on device: {folder}")
    assert "Traceback" not in full.stderr
    other_file.unlink()
    assert finish(run).returncode == 0
    assert learnt(folder) == originals[1]


def test_a_disk_that_becomes_read_only_is_named_and_nothing_changes(disk: Path) -> None:
    run = [*RUN, f"outputs={disk}"]
    folder = started_run(run, 12)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    before = snapshot(folder)
    refused = finish(run)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f"ppo_bench: cannot write to {folder}")
    assert snapshot(folder) == before


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For observations of 30 GiB, where it may take 8 in all."""
    monkeypatch.setattr(faults, "MEMORY_BYTES", 8 * 2**30)
    sizes = ["ppo.num_envs=4", "ppo.num_steps=500000000", "total_timesteps=1000000000000"]
    run = finish([*SMALL, *sizes, f"outputs={tmp_path}"])
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("ppo_bench: out of memory (")
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
def test_a_clock_that_jumps_changes_nothing_but_the_date(originals: tuple[list[Path], Any], tmp_path: Path) -> None:
    """Ten days ahead, then ten days back, in the middle of a run."""
    jumped = [*RUN, f"outputs={tmp_path / 'jumped'}"]
    clock = tmp_path / "clock"
    clock.write_text("+10d")
    fake = ENVIRONMENT | {
        "LD_PRELOAD": str(next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "0",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    folder = run_folder(*jumped)
    with started(*jumped, by=command([]), env=fake, stdout=subprocess.PIPE) as run:
        wait_until(run, lambda: count_rows(folder) >= 20)
        clock.write_text("-10d")
        _, error = run.communicate(timeout=300)
    assert run.returncode == 0, error
    began = datetime.fromisoformat(json.loads((folder / "run.json").read_text())["started"])
    assert began > datetime.now(UTC) + timedelta(days=9)
    assert datetime.fromtimestamp((folder / "result.json").stat().st_mtime, UTC) < datetime.now(UTC) + timedelta(days=1)
    assert learnt(folder) == originals[1]
    seconds = [row["wall_seconds"] for row in rows(folder)]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 24 * 60 * 60
