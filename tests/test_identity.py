"""Which commands are the same experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.common.values import added_field_defaults
from ppo_bench.configuration import identity as identity_module
from ppo_bench.configuration.load import load_config, recorded_config
from tests.test_config import experiment_folder

FOLDERS = {
    "": "default/cartpole-gymnasium-torch_eager-447e5784",
    "env=breakout": "default/breakout-envpool-torch_eager-f8559201",
    "env=hopper": "default/hopper-gymnasium-torch_eager-1bd818fe",
    "framework=jax_xla backend=device num_seeds=3": "default/cartpole-device-jax_xla-48c9402e",
    "experiment=cleanrl/ppo_atari_lstm": "cleanrl/ppo_atari_lstm/breakout-gymnasium-torch_eager-ebc94ea8",
}
"""Folders of this revision. A key that is added and moves one is to be `added_field`; a correction is a new
`REVISION`."""


@pytest.mark.parametrize(("words", "folder"), FOLDERS.items())
def test_the_folders_of_a_revision_stay(words: str, folder: str) -> None:
    assert experiment_folder(*words.split()) == Path("outputs") / folder


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", "env.id=CartPole-v1"),
        ("", "env.info=[]"),
        ("backend=envpool", "backend=envpool backend.num_threads=2"),
        ("backend=gymnasium", "backend.vectorization=async"),
        ("framework=torch_compile", "framework=torch_compile framework.compile_cache=elsewhere"),
        ("", "checkpoint.keep=9"),
        ("", "tracker=[tensorboard,wandb]"),
        ("", "evaluation.every_iterations=3"),
        ("", "video.every_episodes=9"),
        ("", "env.kwargs=null"),
        ("", "ppo.weight_decay=0"),
        ("ppo.shards=2", "ppo.shards=2 devices=2"),
    ],
)
def test_what_trains_the_same_has_one_folder(one: str, other: str) -> None:
    assert experiment_folder(*one.split()) == experiment_folder(*other.split())


@pytest.mark.parametrize(
    "words",
    [
        "total_timesteps=500224",
        "precision=float64",
        "device=cuda",
        "network=mlp",
        "network.hidden_sizes=[8]",
        "env.kwargs={render_mode:rgb_array}",
        "env.rescale_actions=true",
        "env=hopper ppo.obs_clip=5",
        "ppo.anneal_timesteps=4096",
        "env=humanoid backend=envpool env.kwargs={post_constraint:false}",
        "env=breakout env.atari.frames=3",
        "framework.deterministic=true",
        "tuning=off",
        "algorithm=rnd",
        "framework.num_threads=2",
        "backend=envpool",
        "env.id=CartPole-v0",
        "checkpoint.every_iterations=3",
    ],
)
def test_what_is_given_otherwise_has_another_folder(words: str) -> None:
    *base, last = words.split()
    assert experiment_folder(*base, last) != experiment_folder(*base)


def test_a_key_at_the_default_of_earlier_runs_moves_no_folder() -> None:
    newer = {"ppo": Hyperparameters, "env.atari": type(load_config(["env=breakout"]).task.atari)}
    for path, cls in newer.items():
        for key, value in added_field_defaults(cls).items():
            config = load_config(["env=breakout", f"{path}.{key}={'null' if value is None else value}"])
            node: Any = OmegaConf.select(OmegaConf.create(config.resolved), path)
            assert node[key] == value  # run.json says it
            assert key not in OmegaConf.select(OmegaConf.create(config.identity), path)


def test_another_revision_of_the_mathematics_is_another_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_config([]).run_folder
    monkeypatch.setattr(identity_module, "REVISION", identity_module.REVISION + 1)
    assert load_config([]).run_folder != before


def test_a_recorded_configuration_has_the_identity_of_the_command() -> None:
    for words in FOLDERS:
        config = load_config(words.split())
        older = config.resolved | {"env": config.resolved["env"] | {"kwargs": None}, "grid": None}
        older["framework"] = older["framework"] | {"iterations_per_call": 1}
        for recorded in (config.resolved, older):
            assert recorded_config(recorded, {}).identity == config.identity


def test_choices_from_files_without_a_schema_are_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed.py").write_text(
        "from dataclasses import dataclass\nfrom ppo_bench.algorithms.ppo import Ppo\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(Ppo):\n    coef: float\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for group, text in {"algorithm": "_target_: typed.Mine\nname: mine\ncoef: 1\n", "ppo": plain_ppo()}.items():
        (tmp_path / group).mkdir()
        (tmp_path / group / "bare.yaml").write_text(text)
    words = [f"hydra.searchpath=[file://{tmp_path}]", "algorithm=bare", "ppo=bare"]
    config = load_config(words)
    assert load_config([*words, "algorithm.coef=1.0"]).run_folder == config.run_folder
    assert recorded_config(config.resolved, {}).identity == config.identity
    with pytest.raises(ConfigError, match=r"algorithm\.coef: Value 'abc'"):
        load_config([*words, "algorithm.coef=abc"])
    with pytest.raises(ConfigError, match=r"ppo\.gamma: Value 'high'"):
        load_config([*words, "ppo.gamma=high"])


def plain_ppo() -> str:
    """The keys of `ppo=classic` without their schema."""
    text = (CONF / "ppo" / "classic.yaml").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("defaults:"))
