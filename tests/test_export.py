"""Exported folders: their content for the Hub, and the use of one in place of its run, for play and more training."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

import ppo_bench
from ppo_bench.__main__ import main as train
from ppo_bench.commands.export.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config, recorded_config
from ppo_bench.runners import checkpoint
from tests.evaluations import CARTPOLE, config_with, evaluated, played
from tests.refusals import assert_refused
from tests.training import trained


def exported(run: Path, out: Path) -> Path:
    assert exit_code(main, [str(run), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def an_export(eager: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of `eager` without the evaluations that other tests make; not to be changed."""
    run = tmp_path_factory.mktemp("exports") / "run"
    shutil.copytree(eager, run, ignore=shutil.ignore_patterns("evaluations"))
    return exported(run, run.parent / "export")


def front_matter(folder: Path) -> Any:
    """The metadata of a model card, as the Hub reads them."""
    _, yaml, _ = (folder / "README.md").read_text().split("---\n", 2)
    return OmegaConf.to_container(OmegaConf.create(yaml))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_folder_is_what_the_run_is(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(run, tmp_path / "for the hub")
    assert capsys.readouterr().out.splitlines() == [str(folder), f"hf upload ppo-CartPole-v1 '{folder}'"]
    assert names(folder) == {"README.md", "config.json", "model.safetensors"}
    newest = checkpoint.find(run)
    assert (folder / "model.safetensors").read_bytes() == (newest / "arrays.safetensors").read_bytes()
    about, recorded = json.loads((folder / "config.json").read_text()), json.loads((run / "run.json").read_text())
    assert about.pop("checkpoint") == json.loads((newest / "state.json").read_text())
    assert about.pop("overrides") == [word for word in recorded.pop("overrides") if not word.startswith("outputs=")]
    assert about | {"config": 0} == recorded | {"config": 0}
    assert recorded_config(about["config"], {}).identity == recorded_config(recorded["config"], {}).identity


def test_the_card_has_the_returns_and_the_command(eager: Path, an_export: Path) -> None:
    run, folder = eager, an_export
    about = front_matter(folder)
    assert (about["library_name"], "license" in about) == ("ppo_bench", False)
    assert {"reinforcement-learning", "CartPole-v1", "ppo"} <= set(about["tags"])
    result = json.loads((run / "result.json").read_text())
    mean, std = result["final_return_mean"], result["final_return_std"]
    (found,) = about["model-index"][0]["results"]
    assert found["metrics"][0]["value"] == f"{mean:.2f} +/- {std:.2f}"
    assert found["dataset"]["type"] == "CartPole-v1"
    assert f"{mean:.2f} ± {std:.2f}" in (folder / "README.md").read_text()
    lines = (folder / "README.md").read_text().splitlines()
    (again,) = (shlex.split(line, comments=True)[3:] for line in lines if line.startswith("python -m ppo_bench "))
    recorded = json.loads((run / "run.json").read_text())["config"]
    assert load_config(again).identity == recorded_config(recorded, {}).identity


@pytest.mark.slow
def test_an_evaluation_and_its_video_are_shown_rather_than_training(run: Path, tmp_path: Path) -> None:
    (run / "evaluations").mkdir()
    earlier, later = (run / "evaluations" / f"iteration_{number}-video.mp4" for number in ("00000001", "99999999"))
    earlier.write_bytes(b"of training")
    later.write_bytes(b"of a later policy")
    assert (exported(run, tmp_path / "training") / "replay.mp4").read_bytes() == b"of training"
    told = evaluated(run, "episodes=3", "video=true")
    folder = exported(run, tmp_path / "export")
    shown = f"{np.mean(told['returns']):.2f} ± {np.std(told['returns']):.2f}"
    text = (folder / "README.md").read_text()
    assert f"{shown}, mean ± standard deviation of 3 whole episodes in fresh environments, likeliest actions" in text
    assert '<video src="replay.mp4"' in text
    (video,) = set((run / "evaluations").glob("*.mp4")) - {earlier, later}
    assert (folder / "replay.mp4").read_bytes() == video.read_bytes()
    for file in (video, earlier, later):
        file.unlink()
    assert "replay.mp4" not in names(exported(run, folder))  # of the earlier export, neither


def test_an_evaluation_against_random_play_is_no_return_of_the_policy(run: Path, tmp_path: Path) -> None:
    evaluated(run, "episodes=3")
    (file,) = run.glob("evaluations/*.json")
    assert "of 3 whole episodes" in (exported(run, tmp_path / "export") / "README.md").read_text()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"against": "random"}))
    assert "training episodes, sampled actions" in (exported(run, tmp_path / "export") / "README.md").read_text()


def test_an_exported_run_is_evaluated_wherever_it_lies(run: Path, an_export: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(an_export, tmp_path / "downloaded")
    assert played(evaluated(folder, "episodes=5")) == played(evaluated(run, "episodes=5"))
    assert ppo_bench.load(folder).evaluate(5).tolist() == ppo_bench.load(run).evaluate(5).tolist()


@pytest.mark.slow
def test_a_run_goes_on_from_an_exported_one_as_from_its_own_folder(run: Path, an_export: Path, tmp_path: Path) -> None:
    folder = an_export
    more = [*CARTPOLE, "total_timesteps=2560"]
    ends = [trained(tmp_path / str(k), *more, f"checkpoint.load={source}") for k, source in enumerate((run, folder))]
    assert ends[0].parent.name == ends[1].parent.name  # the same experiment
    digests = {checkpoint.digest(checkpoint.load_named(end).arrays) for end in ends}
    assert len(digests) == 1
    assert "checkpoint.load=RUN_DIR" in (exported(ends[1], tmp_path / "more") / "README.md").read_text()


def test_what_is_private_to_the_machine_stays_there(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "run.json").read_text())["config"]
    tracker = {"wandb": {"_target_": "ppo_bench.runs.trackers.wandb.Wandb", "entity": "somebody"}}
    config_with(run, outputs="/home/somebody/outputs", tracker=tracker, checkpoint=config["checkpoint"])
    text = (exported(run, tmp_path / "export") / "config.json").read_text()
    assert "somebody" not in text
    assert str(tmp_path) not in text


def test_a_checkpoint_can_be_chosen(run: Path, tmp_path: Path) -> None:
    first = min(path for path in (run / "checkpoints").iterdir() if path.name.startswith("iteration_"))
    folder = exported(first, tmp_path / "export")
    loop = checkpoint.load_named(folder).loop
    assert loop == checkpoint.load_named(first).loop
    assert f"for {loop['global_step']:,} environment steps" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["{tmp}/nothing"], "has no checkpoint: name a run folder"),
        (["{run}", "--out", "{run}"], "holds other files: name a new folder by --out"),
        (["{tmp}/export"], "is an exported run already: name the run folder that it was made from"),
        (["{damaged}"], "is damaged (the checksum of model.safetensors does not match)"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], fragment: str, run: Path, an_export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(an_export, tmp_path / "export")
    capsys.readouterr()
    damaged = "{damaged}" in words
    if damaged:
        (tmp_path / "export" / "model.safetensors").write_bytes(b"\0" * 64)
    places = {"tmp": tmp_path, "run": run, "damaged": tmp_path / "export"}
    command = [word.format(**places) for word in words]
    if damaged:
        command = [*CARTPOLE, "device=cpu", f"outputs={tmp_path}", f"checkpoint.load={command[0]}"]
    assert_refused(train if damaged else main, command, fragment, capsys)
