"""Two processes that are started as two machines: the same training as in one process. tests/slurm has real nodes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.runners import checkpoint
from tests.faults import command
from tests.training import ENVIRONMENT, ROOT, run_folder, trained

pytestmark = pytest.mark.slow

SECONDS = 240
COMMON = ["ppo.shards=2", "device=cpu", "precision=float64"]
PENDULUM = "env=pendulum backend=device ppo.num_envs=2 ppo.num_steps=128 ppo.num_minibatches=4 total_timesteps=1024"
RND = "algorithm=rnd algorithm.features=16 algorithm.warm_up_iterations=2"
ROWS = "ppo.num_envs=8 ppo.num_minibatches=2"
CASES = {
    "both normalisations, in the program": f"{PENDULUM} ppo.update_epochs=2",
    "recurrent and curious, on the host": f"env=cartpole network=gru {RND} {ROWS} total_timesteps=3072",
}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def train_as_two_machines(words: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Start both processes, and return them as they ended."""
    told = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    told |= {"MASTER_PORT": str(_free_port())}
    started = [
        subprocess.Popen(
            command(words),
            cwd=ROOT,
            env=ENVIRONMENT | told | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ended = []
    for process in started:
        out, error = process.communicate(timeout=SECONDS)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    return ended


@pytest.mark.parametrize("words", CASES.values(), ids=list(CASES))
def test_jax_on_two_machines_trains_as_in_one_process(words: str, tmp_path: Path) -> None:
    run = [*words.split(), "framework=jax_xla", *COMMON]
    two = [*run, f"outputs={tmp_path / 'two'}"]
    for process in train_as_two_machines([*two, "devices=2"]):
        assert process.returncode == 0, process.stderr
    folders = [run_folder(*two), trained(tmp_path / "one", *run)]
    assert (folders[0] / "episodes.jsonl").read_text() == (folders[1] / "episodes.jsonl").read_text()
    ours, theirs = (checkpoint.load_newest(folder / "checkpoints") for folder in folders)
    assert ours
    assert theirs
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array, theirs.arrays[name], rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_a_port_in_use_is_one_line(framework: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run = subprocess.run(
            command(["env=cartpole", f"framework={framework}", *COMMON, "devices=2", f"outputs={tmp_path}"]),
            check=False,
            cwd=ROOT,
            env=ENVIRONMENT | told,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert run.returncode == 2, run.stderr
    said = run.stderr.strip().splitlines()[-1]
    assert said == f"ppo_bench: 127.0.0.1:{port} is in use: choose another port by MASTER_PORT=..."


def test_jax_takes_neither_a_gpu_for_each_task_nor_the_handler_of_sigterm() -> None:
    script = """
import signal
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.runners.jax_process_group import JaxProcessGroup
received = []
signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
process_group = JaxProcessGroup(read_rank_info(), 60)
signal.raise_signal(signal.SIGTERM)
assert received
import jax
assert jax.config.values["jax_cuda_visible_devices"] == "all"
process_group.close()
"""
    told = {"JOB_ID": "7", "STEP_NODELIST": "n[1-2]", "NTASKS": "2", "PROCID": "0", "LOCALID": "0"}
    told = {f"SLURM_{name}": value for name, value in told.items()}
    told |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=ENVIRONMENT | told, check=False, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def test_learning_that_diverges_ends_both_processes_in_order(tmp_path: Path) -> None:
    run = [*PENDULUM.split(), "framework=jax_xla", *COMMON[:2], "ppo.learning_rate=1e30"]
    run += ["checkpoint.every_iterations=2", f"outputs={tmp_path}"]
    first, second = train_as_two_machines([*run, "devices=2"])
    assert (first.returncode, second.returncode) == (1, 0), first.stderr + second.stderr
    assert "Traceback" not in first.stderr
