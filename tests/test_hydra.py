"""`python -m ppo_bench` does what Hydra's documentation says of a Hydra application."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.values import quote
from ppo_bench.configuration.load import load_config
from tests.processes import TRAIN
from tests.refusals import assert_refused
from tests.training import ENVIRONMENT, SMALL

RUN = [*SMALL, "device=cpu"]


class Noted(Callback):
    """A callback that writes what it is told of a job into a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def on_job_end(self, config: DictConfig, job_return: Any, **_: Any) -> None:
        told = [job_return.status.name, job_return.return_value, logging.getLogger().level, os.getcwd()]
        self._file.write_text(json.dumps(told))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert exit_code(main, list(words)) == 0
    return capsys.readouterr().out


def noted(file: Path) -> list[str]:
    return [f"+hydra.callbacks.mine={{_target_:tests.test_hydra.Noted,file:{file}}}"]


def test_the_configuration_is_shown_whole_and_by_package(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    package: Any = OmegaConf.create(printed(capsys, "-c", "job", "-p", "ppo", "ppo=atari").partition("\n")[2])
    assert package == load_config(["env=breakout", "ppo=atari"]).resolved["ppo"]
    of_hydra: Any = OmegaConf.create(printed(capsys, "--cfg", "hydra", "--resolve"))
    assert of_hydra.hydra.run.dir == "<the run's folder>"
    everything: Any = OmegaConf.create(printed(capsys, "--cfg", "all", "--resolve", *RUN))
    assert everything.hydra.run.dir == str(load_config(RUN).run_folder)
    assert everything.hydra.sweep.dir.startswith("outputs/.sweeps/20")
    assert everything.env.name == "cartpole"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--info", "defaults", "env=hopper"], "| env/hopper"),
        (["env=hopper", "--info"], "hopper"),
        (["--version"], "Hydra 1."),
    ],
    ids=str,
)
def test_information_and_help_are_hydras(words: list[str], said: str, here: Path) -> None:
    """In a process of its own: Hydra replaces the handlers of logging."""
    ended = subprocess.run([*TRAIN, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert said in ended.stdout
    assert list(here.iterdir()) == []


def test_a_run_has_its_configuration_in_its_folder(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    folder = Path(printed(capsys, *RUN).splitlines()[-1])
    assert folder == load_config(RUN).run_folder
    assert OmegaConf.load(folder / ".hydra/overrides.yaml") == RUN
    written: Any = OmegaConf.load(folder / ".hydra/config.yaml")
    assert written.total_timesteps == 1024
    assert [path for path in here.iterdir() if path.name != "outputs"] == []


def test_options_may_stand_between_overrides(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a=1").mkdir()
    assert printed(capsys, "seed=7", "--cfg", "job", "-p", "seed", "ppo.gamma=0.9") == "7\n"
    assert printed(capsys, "seed=7", "--config-dir", "a=1", "--cfg", "job", "-p", "seed") == "7\n"
    assert exit_code(main, ["--cfg", "job", "-p", "nothing"]) == 2
    assert capsys.readouterr().err == "package 'nothing' not found in config\n"


def test_a_run_that_is_refused_as_it_is_built_leaves_no_folder(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert_refused(main, [*RUN, "device=cuda:99"], "device=cuda:99", capsys)
    assert [path for path in here.rglob("*") if path.name != "outputs"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learning_rate=1e-3"], "unknown key learning_rate; did you mean ppo.learning_rate?"),
        (["--config-dir", ".", "experiment=mine"], "a file of the group experiment begins with the line # @package"),
        (["experiment=nothing"], "choose from campaign/atari campaign/atari_envpool "),
        (["env=LunarLander-v3"], "for an id of the backend: env.id=LunarLander-v3"),
    ],
)
def test_what_hydra_refuses_says_what_to_change(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    (here / "experiment").mkdir()
    (here / "experiment" / "mine.yaml").write_text("seed: 2\n")
    assert_refused(main, words, said, capsys)


def test_another_folder_is_that_of_hydra_run_dir(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert printed(capsys, *RUN, "hydra.run.dir=mine") == f"{here}/mine\n"
    assert (here / "mine" / "result.json").is_file()
    assert (here / "mine" / ".hydra" / "config.yaml").is_file()
    assert not (here / "outputs").exists()
    for other in ("seed=2", "ppo.gamma=0.9"):
        assert_refused(main, [*RUN, "hydra.run.dir=mine", other], "mine: another run is there; choose another", capsys)
    assert printed(capsys, *RUN, "hydra.run.dir=mine") == f"{here}/mine\n"
    (here / "theirs").mkdir()
    (here / "theirs" / "run.json").write_text("{}")
    assert_refused(main, [*RUN, "hydra.run.dir=theirs"], "theirs: another run is there", capsys)
    words = [*RUN, "hydra.run.dir=again", "rerun=true"]
    assert_refused(main, words, "rerun=true chooses a new folder itself; leave out one of the two", capsys)
    assert not (here / "again" / ".hydra").exists()
    several = ["num_seeds=2", "framework=jax_xla", "backend=device", "hydra.run.dir=mine"]
    assert_refused(main, [*several, "total_timesteps=1024"], "num_seeds and grid train several runs", capsys)


def test_the_job_may_run_in_its_folder(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    words = [*RUN, "hydra.job.chdir=true", f"hydra.run.dir={here}/mine", "hydra.verbose=true"]
    assert printed(capsys, *words, *noted(here / "noted.json")) == f"{here}/mine\n"
    level = logging.getLogger().level
    status, value, level_of_job, folder = json.loads((here / "noted.json").read_text())
    logging.getLogger().setLevel(logging.WARNING)
    assert (status, level_of_job, level, folder) == ("COMPLETED", logging.DEBUG, logging.DEBUG, f"{here}/mine")
    assert value == json.loads((here / "mine" / "result.json").read_text())["final_return_mean"]
    source = ["hydra.job.chdir=true", "checkpoint.load=mine", "checkpoint.fine_tune=true", "outputs=other"]
    assert printed(capsys, *RUN, *source).startswith(f"{here}/other/default/cartpole")


def test_a_configuration_of_ones_own_is_the_first(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = here / "jürgen's"
    own.mkdir()
    (here / "other").mkdir()
    (own / "mine.yaml").write_text("defaults:\n  - config\n  - _self_\nseed: 3\ntotal_timesteps: 1024\n")
    monkeypatch.setenv("HOME", str(here))
    words = ["-cn", "mine", "--config-dir=jürgen's", f"hydra.searchpath=['file://{here}/other']", "device=cpu"]
    folder = Path(printed(capsys, *words).splitlines()[-1])
    assert folder.name == "seed3"
    overrides = json.loads((folder / "run.json").read_text())["overrides"]
    assert overrides[0] == f"hydra.searchpath=[{quote(f'file://{own}')},'file://{here}/other']"
    by_hand = printed(capsys, f"hydra.searchpath=[{quote(f'file://{own}')}]", *RUN, "hydra.run.dir=by_hand").strip()
    assert json.loads((here / by_hand / "run.json").read_text())["overrides"][0].startswith("hydra.searchpath=")
    assert load_config([*overrides, "seed=3", "total_timesteps=1024", "outputs=outputs"]).run_folder == folder


def test_a_run_is_run_again_from_its_pickled_configuration(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    pickles = "+hydra.callbacks.pickle._target_=hydra.experimental.callbacks.PickleJobInfoCallback"
    printed(capsys, *RUN, pickles, "hydra.run.dir=mine")
    first = json.loads((here / "mine" / "result.json").read_text())
    (here / "mine").rename(here / "first")
    with pytest.warns(UserWarning, match="Experimental rerun"):
        assert printed(capsys, "--experimental-rerun", "first/.hydra/config.pickle") == f"{here}/mine\n"
    assert json.loads((here / "mine" / "result.json").read_text())["episodes"] == first["episodes"]


def test_a_full_error_is_hydras_with_its_traceback(tmp_path: Path) -> None:
    command = [*TRAIN, "env=cartpol", f"outputs={tmp_path}"]
    for full, expected in (("0", False), ("1", True)):
        environment = ENVIRONMENT | {"HYDRA_FULL_ERROR": full}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ("Traceback" in ended.stderr) == expected
        assert "cartpol" in ended.stderr
        assert ended.returncode == 2


def test_an_error_of_a_training_is_no_error_of_hydras(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    diverging = ["ppo.learning_rate=1e30", "ppo.max_grad_norm=1e30", *noted(here / "noted.json")]
    assert exit_code(main, [*RUN, *diverging]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"\w+ is (nan|inf) in iteration \d+: learning diverged", message)
    assert not list(here.rglob("result.json"))
    assert json.loads((here / "noted.json").read_text())[:2] == ["COMPLETED", None]
