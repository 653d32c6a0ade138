"""A training on two devices is that on one: in lockstep, from the same states, and whole trainings within programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ppo_bench.commands.equivalence.__main__ import main as equivalence
from ppo_bench.runners.checkpoint import find, load
from tests.faults import finish, started_run
from tests.processes import count_rows
from tests.training import trained

TWO = ["ppo.shards=2", "device=cpu"]
SMALL = ["ppo.num_envs=4", "ppo.num_steps=32", "total_timesteps=256", "ppo.num_minibatches=2"]
GAMES = ["env=tic_tac_toe", "ppo.num_envs=16", "ppo.num_steps=16", "total_timesteps=512"]
TRXL = ["network=trxl", "network.layers=1", "network.dim=16", "network.memory=8", "network.heads=2"]
RND = ["env=deep_sea", "algorithm=rnd", "algorithm.features=16"]
HOPPER = ["env=hopper", "ppo.num_envs=4", "ppo.num_steps=64", "total_timesteps=512", "ppo.num_minibatches=4"]


def lockstep(words: list[str], outputs: Path) -> None:
    """Lockstep of torch_eager and JAX; test_pages.py runs docs/devices.md, which has one of torch_compile."""
    words = ["framework=torch_eager,jax_xla", "devices=1,2", *TWO, "precision=float64", *words]
    words.append(f"outputs={outputs}")
    assert equivalence(words) == 0


def test_two_devices_take_the_same_actions_and_arrive_at_the_same_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lockstep(["env=cartpole", *SMALL], tmp_path)
    assert "the frameworks do the same" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [*HOPPER, "ppo.target_kl=1e-4"],
        [*RND, "network=lstm", "ppo.norm_adv_by_shard=true", *SMALL],
        [*GAMES, *TRXL],
    ],
    ids=["normalised, target_kl", "rnd, lstm by shard", "a game by a transformer"],
)
def test_whatever_is_trained_two_devices_do_as_one(words: list[str], tmp_path: Path) -> None:
    lockstep(words, tmp_path)


NORMALIZED = ["env=cartpole", "ppo.norm_obs=true", "ppo.norm_reward=true"]
PROGRAMS = [
    ("jax_xla", "device", NORMALIZED),
    ("torch_eager", "device", NORMALIZED),
    ("jax_xla", "device", [*RND, "network=gru", "ppo.num_envs=8", "ppo.num_steps=64"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "backend", "words"), PROGRAMS)
def test_environments_on_the_device_train_the_same_on_two_devices(
    framework: str, backend: str, words: list[str], tmp_path: Path
) -> None:
    run = [*words, *TWO, f"backend={backend}", f"framework={framework}", "precision=float64", "total_timesteps=1024"]
    two = trained(tmp_path / "two", *run, "devices=2")
    assert_the_same_within(1e-9, trained(tmp_path / "one", *run), two)


def assert_the_same_within(tolerance: float, one: Path, two: Path) -> None:
    """Episodes to the last digit that is written, and parameters within a distance relative to their norm."""
    assert (one / "episodes.jsonl").read_text() == (two / "episodes.jsonl").read_text()
    arrays = [load(find(folder)).arrays for folder in (one, two)]
    for name, array in arrays[0].items():
        if name.startswith("params."):
            distance = np.linalg.norm(array.astype(float) - arrays[1][name])
            assert distance <= tolerance * max(1e-3, float(np.linalg.norm(array))), name


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_a_run_that_is_killed_goes_on_on_another_number_of_devices(framework: str, tmp_path: Path) -> None:
    run = ["env=cartpole", *TWO, f"framework={framework}", "precision=float64", "total_timesteps=7168"]
    run += ["checkpoint.every_iterations=4"]
    killed = [*run, f"outputs={tmp_path / 'killed'}"]
    folder = started_run([*killed, "devices=2"], 6)
    assert 6 <= count_rows(folder) < 14
    ended = finish(killed)
    assert ended.returncode == 0, ended.stderr
    assert "devices" in ended.stderr  # not what the run started with
    assert_the_same_within(1e-9, trained(tmp_path / "whole", *run), folder)
