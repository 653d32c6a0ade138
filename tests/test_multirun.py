"""A multirun does what Hydra's documentation says of it, and its jobs are ordinary runs."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from omegaconf import OmegaConf

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.child import Failure
from ppo_bench.sweeps.expand import check_environments
from tests.processes import TRAIN
from tests.test_hydra import RUN, noted, printed
from tests.training import ENVIRONMENT


class Child(NamedTuple):
    """A process of a job that is not started."""

    command: list[str]
    folder: str
    stderr: io.BytesIO = io.BytesIO()

    def wait(self) -> int:
        return 1


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The processes that jobs would start. None is started, and each fails."""
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


def test_a_search_whose_trials_all_fail_has_a_table(
    jobs: list[Child], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["hydra/sweeper=optuna_maximize", "hydra.sweeper.n_trials=2", "ppo.gamma=interval(0.9,0.99)"]
    assert exit_code(main, ["-m", *search, *RUN]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 2 failed, 0 skipped"


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
