"""A run on two nodes, in PyTorch and in JAX: as on one, and whatever happens to the nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.runners import checkpoint
from tests.slurm.cluster import Node, slurm, wait_for, wait_for_an_empty_queue
from tests.slurm.conftest import Runs, python

STEPS = 51_200
RUN = ["env=cartpole", "backend=gymnasium", f"total_timesteps={STEPS}", "checkpoint.every_iterations=5", "seed=1"]
RUN += ["precision=float64", "ppo.shards=2", "device=cpu"]
PAIR = ["devices=2", "launch.nodes=2", "launch.partition=pair"]


@pytest.fixture(scope="module", params=["torch_eager", "jax_xla"])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def on_one(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run in one process on one device."""
    process = python("-m", "ppo_bench", *RUN, f"framework={framework}", f"outputs={tmp_path_factory.mktemp('one')}")
    assert process.returncode == 0, process.stderr
    return Path(process.stdout.splitlines()[-1])


def assert_same(two: Path, one: Path) -> None:
    """Every episode is the same, and parameters, moments and all else that was learnt, up to rounding."""
    assert (two / "episodes.jsonl").read_text() == (one / "episodes.jsonl").read_text()
    ours, theirs = (checkpoint.load_newest(folder / "checkpoints") for folder in (two, one))
    assert ours
    assert theirs
    assert ours.loop["iteration"] == theirs.loop["iteration"] == STEPS // 512
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array, theirs.arrays[name], rtol=0, atol=1e-10, err_msg=name)


def test_a_run_on_two_nodes_that_is_told_to_end_is_queued_again_and_ends_as_on_one(
    runs: Runs, framework: str, nodes: dict[str, Node], on_one: Path
) -> None:
    """By a job of higher priority; in JAX, which would take it itself, by a signal to the other node alone."""
    said = runs.launch(*RUN, *PAIR, f"framework={framework}", cpus=2)
    assert "1 of 1 runs submitted" in said
    assert "1 job of 2 nodes, each 1 task, 2 CPU" in said
    assert "0 of 1 runs submitted" in runs.launch(*RUN, *PAIR, f"framework={framework}", cpus=2)
    runs.wait_for_checkpoint("seed1")
    if framework == "jax_xla":
        os.kill(training_on(nodes["right"]), signal.SIGTERM)
    else:
        slurm("sbatch", "--partition=pair_high", "--nodes=1", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 1")
    runs.wait("the run queued again", lambda s: s["seed1"].remarks.endswith("requeues: 1"))
    status = runs.wait_until_idle()
    assert status["seed1"].state == "done", runs.log(status["seed1"])
    assert "resuming" in runs.log(status["seed1"])
    assert "on 2 x cpu" in runs.log(status["seed1"])
    assert_same(runs.folder("seed1"), on_one)


def test_a_run_goes_on_after_one_of_its_nodes_has_died(
    runs: Runs, framework: str, nodes: dict[str, Node], on_one: Path
) -> None:
    runs.launch(*RUN, *PAIR, f"framework={framework}", cpus=2)
    runs.wait_for_checkpoint("seed1")
    nodes["right"].die()
    try:
        wait_for("the job queued again", lambda: "requeues: 1" in runs.status()["seed1"].remarks)
    finally:
        nodes["right"].start()
    status = runs.wait_until_idle()
    assert status["seed1"].state == "done", runs.log(status["seed1"])
    assert "resuming" in runs.log(status["seed1"])
    assert_same(runs.folder("seed1"), on_one)


def remarks_with(start: str, runs: Runs, tmp_path: Path) -> str:
    """What is said of a run that has failed, whose Python processes all begin with the code `start`."""
    (tmp_path / "sitecustomize.py").write_text(start)
    setup = f"launch.setup=['export PYTHONPATH={tmp_path}:$PYTHONPATH']"
    runs.launch(*RUN, *PAIR, setup, "collective_timeout_seconds=20", cpus=2)
    return runs.wait("given up", lambda s: s["seed1"].state == "failed")["seed1"].remarks


NEVER = """
import os, sys, time
if os.environ.get("RANK") == "1" and "ppo_bench" in sys.orig_argv:
    time.sleep(600)
"""


def test_a_node_that_never_comes_is_one_line(runs: Runs, tmp_path: Path) -> None:
    remarks = remarks_with(NEVER, runs, tmp_path)
    assert remarks.startswith("not all 2 processes came within 20 seconds; see ")
    wait_for_an_empty_queue()


def test_a_process_that_is_killed_on_a_node_that_lives_is_a_failure(runs: Runs, nodes: dict[str, Node]) -> None:
    """In JAX, which would end all processes by itself. In PyTorch: tests/test_devices_faults.py."""
    runs.launch(*RUN, *PAIR, "framework=jax_xla", cpus=2)
    runs.wait_for_checkpoint("seed1")
    os.kill(training_on(nodes["right"]), signal.SIGKILL)
    status = runs.wait("failed", lambda s: s["seed1"].state == "failed")
    assert status["seed1"].remarks.startswith("process 1 of 2, on ")
    assert ": killed by SIGKILL; see " in status["seed1"].remarks
    wait_for_an_empty_queue()
    assert "1 of 1 runs would be submitted" in runs.launch(*RUN, *PAIR, "framework=jax_xla", "--dry-run", cpus=2)


def training_on(node: Node) -> int:
    """The process that trains on a node."""

    def words(process: int) -> list[str]:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")

    (process,) = (process for process in node.processes() if words(process)[1:3] == ["-m", "ppo_bench"])
    return process
