"""The overrides in a run.json: composed again, they give the same configuration."""

from __future__ import annotations

from typing import Any

import pytest

from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.words import words_for, written

PRESETS = sorted(f"experiment=cleanrl/{path.stem}" for path in (CONF / "experiment" / "cleanrl").glob("*.yaml"))
OWN_IDS = {"experiment=cleanrl/ppo_trxl_minigrid"}
"""Presets that give an environment's file other ids, which words can only give to the run."""


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], ["env=cartpole", "framework=torch_eager"]),
        (
            ["env=hopper", "backend=envpool", "seed=3", "outputs=/elsewhere", "video.every_episodes=5", "name=mine"],
            ["env=hopper", "framework=torch_eager", "backend=envpool", "seed=3"],
        ),
        (["env=procgen", "env.game=CoinRun"], ["env=procgen", "env.game=CoinRun", "framework=torch_eager"]),
        (["env.id=CartPole-v1"], ["env=cartpole", "framework=torch_eager"]),
        (
            ["backend=envpool", "env.id=Pendulum-v1"],  # for whose actions of floats a group is chosen
            ["env=cartpole", "framework=torch_eager", "backend=envpool", "ppo=continuous", "env.id=Pendulum-v1"],
        ),
        (
            ["env=breakout", "tuning=off", "ppo.learning_rate=1e-3"],
            ["env=breakout", "framework=torch_eager", "tuning=off", "ppo.learning_rate=0.001"],
        ),
        (
            ["env=cartpole_masked", "network=gru", "network.units=32"],
            ["env=cartpole_masked", "framework=torch_eager", "network=gru", "network.units=32"],
        ),
    ],
)
def test_words_are_few(asked: list[str], expected: list[str]) -> None:
    assert words_for(load_config(asked).resolved) == expected


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_same_experiment_by_other_words(preset: str) -> None:
    config = load_config([preset])
    words = words_for(config.resolved)
    assert words
    assert not any(word.startswith("experiment=") for word in words)
    again = load_config(words)
    assert again.task.id == config.task.id
    assert (again.identity == config.identity) == (preset not in OWN_IDS)


def test_a_configuration_of_a_users_own_choices_has_no_words() -> None:
    recorded = load_config([]).resolved
    recorded["network"] |= {"_target_": "tests.seams.AveragingMlp"}
    assert words_for(recorded) is None


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.00025, 1e-08, "tanh", "null", "a b", "1.5", {"a": [1, {"b": "x"}]}, [], ["is_success"], -0.5],
)
def test_values_are_read_as_they_were(value: Any) -> None:
    kwargs = load_config([f"env.kwargs={{key:{written(value)}}}"]).root.env.kwargs
    assert kwargs == {"key": value}
