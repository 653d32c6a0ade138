"""Evaluations that are refused: one line says why, and nothing is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.commands.evaluate import main
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.host import to_vector_env
from ppo_bench.runs.video.scene import open_scene
from tests.evaluations import config_with
from tests.refusals import assert_refused
from tests.training import snapshot

WRONG = {
    "episode=3": "unknown key episode; did you mean episodes?",
    "ppo.gamma=0.5": "unknown key ppo; choose from episodes num_envs",
    "episodes=0": "episodes=0: must be at least 1",
    "framework=tensorflow": "framework/tensorflow",
    "--frames": "unrecognized arguments: --frames",
}


@pytest.mark.parametrize(("text", "fragment"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_word_is_one_line_and_nothing_is_written(
    text: str, fragment: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_refused(main, [str(run), *text.split(" ")], fragment, capfd)
    assert not (run / "evaluations").exists()


def test_an_environment_that_gymnasium_lays_out_in_another_way_is_not_drawn() -> None:
    config = load_config(["env.id=Blackjack-v1", "backend=envpool"])
    env = to_vector_env(config.backend.make(config.task))
    with pytest.raises(ConfigError, match="video=true: Blackjack-v1 cannot be drawn: "):
        open_scene(config, env)
    env.close()


def without_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def damaged_checkpoint(run: Path) -> None:
    (run / "checkpoints/iteration_00000004/arrays.safetensors").write_bytes(b"\0" * 64)


def of_another_version(run: Path) -> None:
    path = run / "checkpoints/iteration_00000004/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))


def another_network(run: Path) -> None:
    config_with(run, network=load_config(["network=mlp", "network.hidden_sizes=[32,32]"]).resolved["network"])


DAMAGES = {
    "no checkpoints": (without_checkpoints, "has no checkpoint: name a run folder or one of its checkpoints/iteration"),
    "damaged checkpoint": (damaged_checkpoint, "is damaged (the checksum of arrays.safetensors does not match)"),
    "another version": (of_another_version, "was written by schema version 99, this is 1"),
    "another network": (another_network, "use the network that it was trained with"),
    "run.json cut off": (lambda run: (run / "run.json").write_text('{"schema'), "run.json is damaged ("),
    "unknown key": (lambda run: config_with(run, surprise=1), "run.json: unknown key surprise; choose from name"),
    "unknown class": (
        lambda run: config_with(run, framework={"_target_": "os.PathLike"}),
        "os.PathLike",
    ),
}


@pytest.mark.parametrize(("damage", "fragment"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_run_that_cannot_be_evaluated_is_one_line_and_is_left_as_it_is(
    damage: Any, fragment: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(run)
    before = snapshot(run)
    assert "rerun=true" not in assert_refused(main, [str(run)], fragment, capfd)
    assert snapshot(run) == before
    assert not (run / "evaluations").exists()


def test_without_a_run_folder_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert_refused(main, [], "RUN_DIR", capfd)
    assert_refused(main, ["episodes=3"], "RUN_DIR is missing: name a run's folder before the overrides", capfd)


def test_of_several_runs_none_is_played_if_one_is_wrong(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_refused(main, [str(run), str(run.parent / "seed9")], "seed9 has no checkpoint", capfd)
    assert not (run / "evaluations").exists()
