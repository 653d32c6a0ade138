"""A training on two devices is that on one: in lockstep, from the same states, and whole trainings within programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ppo_bench.commands.equivalence.command import main as equivalence
from ppo_bench.runners.checkpoint import find, load
from tests.faults import finish, folder_of, started_run
from tests.processes import count_rows

TWO = ["ppo.shards=2", "device=cpu"]
SMALL = ["ppo.num_envs=4", "ppo.num_steps=32", "total_timesteps=512", "ppo.num_minibatches=2"]
GAMES = ["env=tic_tac_toe", "ppo.num_envs=16", "ppo.num_steps=16", "total_timesteps=768"]
TRXL = ["env=cartpole_masked", "network=trxl", "network.dim=16", "network.memory=8", "network.heads=2"]


def lockstep(words: list[str], outputs: Path) -> None:
    """Lockstep of torch_eager and JAX; test_documents.py runs docs/devices.md, which has one of torch_compile."""
    words = ["devices=[1,2]", *TWO, "precision=float64", "frameworks=[torch_eager,jax_xla]", *words]
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
        ["env=hopper", "ppo.num_envs=4", "ppo.num_steps=64", "total_timesteps=768", "ppo.num_minibatches=4"],
        ["env=cartpole_masked", "network=lstm", "ppo.norm_adv_by_shard=true", *SMALL],
        ["env=deep_sea", "algorithm=rnd", "algorithm.features=16", *SMALL],
        ["env=cartpole", "ppo.target_kl=1e-4", *SMALL],
        [*TRXL, *SMALL],
        GAMES,
        ["env=breakout", "backend=envpool", "ppo.num_envs=4", "ppo.num_steps=16", "total_timesteps=128"],
    ],
    ids=[
        "normalised",
        "lstm by shard",
        "rnd",
        "target_kl",
        "trxl",
        "games against the past",
        "atari",
    ],
)
def test_whatever_is_trained_two_devices_do_as_one(words: list[str], tmp_path: Path) -> None:
    lockstep(words, tmp_path)


NORMALIZED = ["env=cartpole", "ppo.norm_obs=true", "ppo.norm_reward=true"]
PROGRAMS = [
    ("jax_xla", "device", NORMALIZED),
    ("torch_eager", "device", NORMALIZED),
    ("torch_compile", "device", NORMALIZED),
    ("jax_xla", "device", ["env=cartpole_masked", "network=gru", "ppo.num_envs=8"]),
    ("jax_xla", "device", ["env=deep_sea", "algorithm=rnd", "algorithm.features=16", "ppo.num_envs=4"]),
    ("jax_xla", "device", ["env=brax_reacher", "ppo.num_envs=4", "ppo.num_steps=8", "ppo.num_minibatches=2"]),
    ("jax_xla", "envpool_xla", ["env=hopper", "ppo.num_envs=2", "ppo.num_steps=256"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "backend", "words"), PROGRAMS)
def test_environments_on_the_device_train_the_same_on_two_devices(
    framework: str, backend: str, words: list[str], tmp_path: Path
) -> None:
    run = [*words, *TWO, f"backend={backend}", f"framework={framework}", "precision=float64", "total_timesteps=1024"]
    one, two = ([*run, f"devices={k}", f"outputs={tmp_path / str(k)}"] for k in (1, 2))
    for each in (one, two):
        ended = finish(each)
        assert ended.returncode == 0, ended.stderr
    assert_the_same_within(1e-9, folder_of(one), folder_of(two))


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
    run = ["env=cartpole", *TWO, f"framework={framework}", "precision=float64", "total_timesteps=10240"]
    run += ["checkpoint.every_iterations=4"]
    whole, killed = ([*run, f"outputs={tmp_path / name}"] for name in ("whole", "killed"))
    assert finish(whole).returncode == 0
    folder = started_run([*killed, "devices=2"], 6)
    assert 6 <= count_rows(folder) < 20
    ended = finish(killed)
    assert ended.returncode == 0, ended.stderr
    assert "devices" in ended.stderr  # not what the run started with
    assert_the_same_within(1e-9, folder_of(whole), folder)
