"""`python -m ppo_bench` does what Hydra's documentation says of a Hydra application."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import RunError
from ppo_bench.common.values import quote
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.child import Failure
from ppo_bench.sweeps.expand import check_environments
from tests.processes import TRAIN
from tests.refusals import assert_one_line
from tests.training import ENVIRONMENT, ROOT, SMALL

RUN = [*SMALL, "device=cpu"]


class Noted(Callback):
    """A callback that writes what it is told of a job into a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def on_job_end(self, config: DictConfig, job_return: Any, **_: Any) -> None:
        told = [job_return.status.name, job_return.return_value, logging.getLogger().level, os.getcwd()]
        self._file.write_text(json.dumps(told))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the test, in which processes find the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


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
    assert exit_code(main, [*RUN, "device=cuda:99"]) == 2
    assert_one_line(capsys.readouterr().err, "device=cuda:99")
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
    assert exit_code(main, words) == 2
    assert_one_line(capsys.readouterr().err, said)


def test_another_folder_is_that_of_hydra_run_dir(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert printed(capsys, *RUN, "hydra.run.dir=mine") == f"{here}/mine\n"
    assert (here / "mine" / "result.json").is_file()
    assert (here / "mine" / ".hydra" / "config.yaml").is_file()
    assert not (here / "outputs").exists()
    for other in ("seed=2", "ppo.gamma=0.9"):
        assert exit_code(main, [*RUN, "hydra.run.dir=mine", other]) == 2
        assert_one_line(capsys.readouterr().err, "hydra.run.dir=mine: another run is there; choose another folder")
    assert printed(capsys, *RUN, "hydra.run.dir=mine") == f"{here}/mine\n"
    (here / "theirs").mkdir()
    (here / "theirs" / "run.json").write_text("{}")
    assert exit_code(main, [*RUN, "hydra.run.dir=theirs"]) == 2
    assert_one_line(capsys.readouterr().err, "theirs: another run is there")
    assert exit_code(main, [*RUN, "hydra.run.dir=again", "rerun=true"]) == 2
    assert_one_line(capsys.readouterr().err, "rerun=true chooses a new folder itself; leave out one of the two")
    assert not (here / "again" / ".hydra").exists()
    several = ["num_seeds=2", "framework=jax_xla", "backend=device", "hydra.run.dir=mine"]
    assert exit_code(main, [*several, "total_timesteps=1024"]) == 2
    assert_one_line(capsys.readouterr().err, "num_seeds and grid train several runs")


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
    assert "learning diverged" in capsys.readouterr().err.splitlines()[-1]
    assert json.loads((here / "noted.json").read_text())[:2] == ["COMPLETED", None]


class Child(NamedTuple):
    """A process of a job that is not started."""

    command: list[str]
    folder: str
    stderr: io.BytesIO = io.BytesIO()

    def wait(self) -> int:
        return 1


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The processes of jobs, in place of which none is started, and which fail."""
    started: list[Child] = []

    def start(command: list[str], cwd: str, **_: object) -> Child:
        started.append(Child(command[3:], cwd))
        return started[-1]

    monkeypatch.setattr("ppo_bench.sweeps.child.subprocess.Popen", start)
    return started


@pytest.fixture
def own(here: Path) -> Path:
    """A folder with an experiment that is a sweep by itself."""
    (here / "own" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra:\n  mode: MULTIRUN\n  run: {dir: fixed}\n  sweeper: {params: {++seed: '1,2'}}\n"
    (here / "own" / "experiment" / "mine.yaml").write_text(text)
    return here / "own"


@pytest.mark.parametrize("option", [[], ["-m"]], ids=str)
def test_a_job_is_one_run_in_its_usual_folder_whatever_its_experiment_says(
    option: list[str], jobs: list[Child], own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*option, "--config-dir", "own", "experiment=mine", *RUN, "hydra.output_subdir=null"]
    assert exit_code(main, words) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 2 failed, 0 skipped"
    for seed, job in zip((1, 2), jobs, strict=True):
        shown = [printed(capsys, *job.command, "--cfg", "hydra", "-p", f"hydra.{key}") for key in ("mode", "run.dir")]
        assert shown == ["RunMode.RUN\n", "<the run's folder>\n"]
        assert {f"++seed={seed}", "hydra.output_subdir=null"} <= set(job.command)


def test_the_process_of_a_job_starts_where_the_sweep_does(
    jobs: list[Child], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, ["-m", *RUN, "seed=1,2", "hydra.job.chdir=true"]) == 1
    assert [job.folder for job in jobs] == [str(here)] * 2


def test_the_table_of_a_sweep_has_its_own_jobs_wherever_their_folders_are(
    jobs: list[Child], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", *RUN, "hydra.sweep.dir=mine", "hydra.sweep.subdir=a/${seed}"]
    assert exit_code(main, [*words, "seed=1,2"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 2 failed, 0 skipped"
    for seed in (3, 4):
        folder = load_config([*RUN, f"seed={seed}"]).run_folder
        folder.mkdir(parents=True)
        (folder / "result.json").write_text('{"final_return_mean": 1.0}')
    assert exit_code(main, [*words, "seed=3", "num_seeds=2", "framework=jax_xla", "backend=device"]) == 1
    assert exit_code(main, [*words, "seed=3,4"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 0 failed, 2 skipped"
    assert len(jobs) == 3


def test_a_table_that_cannot_be_made_is_an_error(
    jobs: list[Child], here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RunError("no table")

    monkeypatch.setattr("ppo_bench.sweeps.callback.print_outcomes", refuse)
    assert exit_code(main, ["-m", *RUN]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: no table"


def test_a_search_whose_trials_all_fail_has_a_table(
    jobs: list[Child], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["hydra/sweeper=optuna_maximize", "hydra.sweeper.n_trials=2", "ppo.gamma=interval(0.9,0.99)"]
    assert exit_code(main, ["-m", *search, *RUN]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 2 failed, 0 skipped"


def test_a_sweep_of_no_jobs_at_a_time_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, ["-m", *RUN, "hydra.sweeper.max_batch_size=0"]) == 2
    assert_one_line(capsys.readouterr().err, "hydra.sweeper.max_batch_size=0: must be at least 1")


def test_a_job_waits_for_a_folder_that_another_process_takes_while_it_starts(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = load_config(RUN).run_folder
    in_use, failures = iter([False, False, True, True, True, False]), iter([Failure(2, "in use"), None])

    def train(*_: object) -> Failure | None:
        folder.mkdir(parents=True, exist_ok=True)
        if (failure := next(failures)) is None:
            (folder / "result.json").write_text('{"final_return_mean": 1.0}')
        return failure

    monkeypatch.setattr("ppo_bench.sweeps.job.is_in_use", lambda _: next(in_use))
    monkeypatch.setattr("ppo_bench.sweeps.job.train_in_process", train)
    monkeypatch.setattr("ppo_bench.sweeps.job.POLL_SECONDS", 0.0)
    assert exit_code(main, ["-m", *RUN]) == 0
    said = capsys.readouterr().err
    assert said.count("which is being trained by another process") == 1
    assert said.splitlines()[-1] == "ppo_bench: 1 done, 0 failed, 0 skipped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_sweep_that_waits_for_a_folder_ends_by_any_signal(
    number: signal.Signals, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(number, signal.SIG_IGN)  # if nobody handles it
    monkeypatch.setattr("ppo_bench.sweeps.job.is_in_use", lambda _: signal.raise_signal(number))
    assert exit_code(main, ["-m", *RUN]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "ppo_bench: the sweep stopped; the same command goes on with what is missing"


def test_environments_are_tried_without_a_change_of_the_folder(here: Path) -> None:
    config = load_config(["env.id=tests.broken:Moves-v0", "backend=gymnasium", "total_timesteps=1024"])
    check_environments([config])
    assert Path.cwd() == here


@pytest.mark.slow
def test_a_multirun_has_the_folders_and_callbacks_that_it_is_given(here: Path) -> None:
    words = [*RUN, "hydra.sweep.dir=mine", "hydra.sweep.subdir=seed${seed}", *noted(here / "noted.json")]
    assert exit_code(main, ["-m", *words, "seed=1,2"]) == 0
    assert sorted(path.name for path in (here / "mine").iterdir()) == ["multirun.yaml", "seed1", "seed2"]
    assert {path.name for path in (here / "mine/seed1").iterdir()} == {".hydra", "outcome.json"}
    outcome = json.loads((here / "mine/seed2/outcome.json").read_text())
    status, value, *_ = json.loads((here / "noted.json").read_text())
    assert (status, outcome["state"]) == ("COMPLETED", "done")
    assert value == outcome["final_return_mean"]


@pytest.mark.slow
def test_an_experiment_may_choose_the_launcher_and_the_sweep(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "own" / "experiment").mkdir(parents=True)
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: joblib\nname: own\n"
    text += "hydra: {sweeper: {params: {seed: '1,2'}}}\n"
    (here / "own" / "experiment" / "mine.yaml").write_text(text)
    command = [*TRAIN, "-m", "--config-dir", "own", "experiment=mine", *RUN]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "ppo_bench: 2 done, 0 failed, 0 skipped"
    chosen: Any = OmegaConf.load(next((here / "outputs/.sweeps").glob("*/multirun.yaml")))
    assert chosen.hydra.launcher._target_.endswith("JoblibLauncher")
