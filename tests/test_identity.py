"""Which commands are the same experiment, and where runs of earlier versions are found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.values import younger
from ppo_bench.configuration import load as load_module
from ppo_bench.configuration.identity import REVISION, roundest
from ppo_bench.configuration.load import load_config
from tests.test_config import experiment_folder

FIRST_FOLDERS = {
    "": "default/cartpole-gymnasium-torch_eager-1457ea8c",
    "env=breakout": "default/breakout-envpool-torch_eager-9716896d",
    "env=hopper": "default/hopper-gymnasium-torch_eager-08fe4fa2",
    "env=breakout framework=torch_compile backend=gymnasium": "default/breakout-gymnasium-torch_compile-91edad7b",
    "env=brax_ant checkpoint.every_iterations=320": "default/brax_ant-jax-jax_xla-d95cd079",
    "framework=jax_xla backend=jax ppo.num_envs=64": "default/cartpole-jax-jax_xla-c87f7c1c",
    "checkpoint.every_iterations=3": "default/cartpole-gymnasium-torch_eager-d18c1edc",
    "ppo.num_envs=8 env.kwargs={a:1}": "default/cartpole-gymnasium-torch_eager-5af07ce6",
    "device=cpu": "default/cartpole-gymnasium-torch_eager-89f97a9a",  # on any machine
}
"""Folders of the first version. A key that was added since and moves one is to be `younger`."""
OTHER_SPELLINGS = (
    *("total_timesteps=500001", "network=mlp", "backend.vectorization=async", "env.id=CartPole-v1"),
    "ppo.obs_clip=5",
)
"""Words of commands that train what the command without words does."""


@pytest.mark.parametrize(("words", "folder"), FIRST_FOLDERS.items())
def test_runs_of_the_first_version_are_where_they_were(words: str, folder: str) -> None:
    assert experiment_folder(*words.split()) == Path("outputs") / folder


@pytest.mark.parametrize(
    ("words", "revised"),
    [
        ("", False),
        ("env=breakout framework=jax_xla", False),
        ("env=pendulum", False),
        ("env.id=CartPole-v1 env.kwargs={render_mode:null}", False),
        ("network=mlp env.id=LunarLander-v3", False),
        ("network=mlp network.activation=leaky_relu", True),
        ("env=deep_sea", True),
        ("env=breakout algorithm=rnd framework=torch_eager", True),  # also where it is the same, to be compared
        ("env=starpilot", True),
        ("network=impala_cnn env=breakout", True),
        ("env=proof_of_memory network=trxl", True),
        ("network=combined env.id=LunarLander-v3", True),  # whose dictionaries may hold several frames
        ("env.id=LunarLander-v3", True),  # whose observations, and network, are unknown
    ],
)
def test_trainings_that_a_correction_changes_have_folders_of_their_own(words: str, revised: bool) -> None:
    assert load_config(words.split()).identity.get("revision") == (REVISION if revised else None)


@pytest.mark.parametrize("words", OTHER_SPELLINGS)
def test_what_trains_the_same_has_one_folder(words: str) -> None:
    assert experiment_folder(words) == experiment_folder()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("backend=envpool", "backend=envpool backend.num_threads=2"),
        ("env=breakout", "env=breakout network=nature_cnn"),
        ("env=breakout", "env=breakout network.hidden_sizes=[8]"),  # of which its network has none
        ("env=starpilot", "env=starpilot network=impala_cnn"),
        ("env=minatar_asterix", "env=minatar_asterix network=minatar_cnn"),
        ("env=hopper", "env=hopper total_timesteps=1000100"),
        ("ppo.anneal_lr=false", "ppo.anneal_lr=false ppo.final_learning_rate=1e-5"),
        ("ppo.norm_adv=false", "ppo.norm_adv=false ppo.norm_adv_by_shard=true"),
    ],
)
def test_other_environments_have_one_folder_too(one: str, other: str) -> None:
    assert experiment_folder(*one.split()) == experiment_folder(*other.split())


@pytest.mark.parametrize(
    "words",
    [
        "total_timesteps=500224",  # one iteration more
        "device=cuda",
        "network=mlp network.hidden_sizes=[8]",
        "env.kwargs={render_mode:rgb_array} network=mlp",  # which may have other observations
        "env=hopper ppo.obs_clip=5",
        "ppo.anneal_timesteps=4096",
        "env=humanoid backend=envpool env.kwargs={post_constraint:false}",
        "ppo.final_learning_rate=1e-5",
        "env=breakout network=mlp",
        # Ids with the endings of Procgen's and the beginnings of Gymnasium's, whose observations nobody knows.
        "env.id=popgym-RepeatFirstEasy-v0 network.hidden_sizes=[8]",
        "env.id=MountainCarPixels-v0 network=mlp",
        "env.id=CartPole-Pixels-v0 network=mlp",
    ],
)
def test_what_trains_otherwise_has_another_folder(words: str) -> None:
    base = [word for word in words.split() if word.startswith(("env=", "env.id="))]
    assert experiment_folder(*words.split()) != experiment_folder(*base)


@dataclass(frozen=True)
class WithANewKey(Hyperparameters):
    """Hyperparameters with a key that older runs did not have."""

    entropy_floor: float = younger(0.0)


def test_a_new_key_at_its_default_moves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "Hyperparameters", WithANewKey)
    for words, folder in FIRST_FOLDERS.items():
        config = load_config(words.split())
        assert config.run_folder.parent == Path("outputs") / folder
        assert config.resolved["ppo"]["entropy_floor"] == 0.0  # and run.json says it
    assert experiment_folder("+ppo.entropy_floor=0.0") == experiment_folder()
    assert experiment_folder("+ppo.entropy_floor=0.1") != experiment_folder()


@pytest.mark.parametrize(
    ("env", "network"),
    [
        ("cartpole", "mlp"),
        ("hopper", "mlp"),
        ("dmc_cheetah_run", "mlp"),
        ("breakout", "nature_cnn"),
        ("minatar_asterix", "minatar_cnn"),
    ],
)
def test_auto_builds_the_network_that_shares_its_folder(env: str, network: str) -> None:
    auto, chosen = load_config([f"env={env}"]), load_config([f"env={env}", f"network={network}"])
    assert chosen.identity == auto.identity
    made = auto.backend.make(auto.task)
    try:
        assert chosen.network_for(made) == auto.network_for(made)
    finally:
        made.close()


@pytest.mark.parametrize(
    ("low", "count", "expected"),
    [(499_712, 512, 500_000), (9_999_360, 1024, 10_000_000), (512, 512, 1000), (20_480, 512, 20_500), (7, 1, 7)],
)
def test_the_roundest_number_has_the_most_zeros(low: int, count: int, expected: int) -> None:
    assert roundest(low, count) == expected
