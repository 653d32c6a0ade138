"""Sweeps: each run is trained once, however often the command is started, and a failed run stops no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.runs.results import final_return
from ppo_bench.sweeps.slurm.submit import main as submit
from tests.processes import TRAIN, children, has_checkpoint, started, wait_until
from tests.refusals import assert_refused
from tests.training import GYM, ROOT, SHORT, rows, run_folder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clone")]

LONG = [*GYM, "total_timesteps=15_360", "checkpoint.every_iterations=5"]


def states(outputs: Path) -> list[tuple[str, str]]:
    """State and run folder's name of all outcomes that the sweeps of a folder have noted, oldest first."""
    noted = [json.loads(path.read_text()) for path in sorted(outputs.glob(".sweeps/*/*/outcome.json"))]
    return [(row["state"], Path(row["folder"]).name) for row in noted]


def test_a_sweep_runs_every_job_once_and_starts_nothing_when_it_is_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["-m", "seed=1,2", *GYM, *SHORT, "outputs=runs"]
    assert exit_code(main, arguments) == 0
    printed = capfd.readouterr()
    folders = [run_folder(f"seed={seed}", *GYM, *SHORT, "outputs=runs") for seed in (1, 2)]
    assert printed.out.splitlines() == [str(folder) for folder in folders]
    assert printed.err.splitlines()[-1] == "ppo_bench: 2 done, 0 failed, 0 skipped"
    assert sorted(folders[0].parent.iterdir()) == folders
    results = {folder: (folder / "result.json").read_bytes() for folder in folders}
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/false")  # any job that is started fails
        assert exit_code(main, arguments) == 0
    printed = capfd.readouterr()
    assert printed.out.splitlines() == [str(folder) for folder in folders]
    assert printed.err.splitlines()[-1] == "ppo_bench: 0 done, 0 failed, 2 skipped"
    assert {folder: (folder / "result.json").read_bytes() for folder in folders} == results
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_damaged_result_does_not_stop_the_other_jobs_of_its_sweep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*GYM, *SHORT, f"outputs={tmp_path}"]
    damaged = run_folder("seed=1", *words)
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text("{")
    assert exit_code(main, ["-m", "seed=1,2", *words]) == 1
    said = capfd.readouterr().err
    assert said.splitlines()[-1] == "ppo_bench: 1 done, 1 failed, 0 skipped"
    assert f"{damaged / 'result.json'} is damaged" in " ".join(said.split())


def test_a_job_that_fails_does_not_stop_the_others_of_its_sweep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    overrides = [*GYM, *SHORT, f"outputs={tmp_path}"]
    assert exit_code(main, ["-m", "ppo.learning_rate=1e30,0.001", *overrides]) == 1
    lines = capfd.readouterr().err.splitlines()
    (failed,) = [line for line in lines if line.startswith("ppo_bench: job 0: failed, ")]
    assert "policy_loss is nan in iteration 1" in failed
    assert lines.index(failed) < len(lines) - 4, "reported before the other run and the table"
    first, second, last = lines[-3:]
    assert first.split()[:5] == ["failed", "ppo.learning_rate=1e+30", "policy_loss", "is", "nan"]
    folder = run_folder("ppo.learning_rate=0.001", *overrides)
    value = json.loads((folder / "result.json").read_text())["final_return_mean"]
    assert second.split() == ["done", "ppo.learning_rate=0.001", f"{value:.2f}"]
    assert last == "ppo_bench: 1 done, 1 failed, 0 skipped"


@pytest.mark.parametrize("alone", [False, True], ids=["a terminal", "a cluster"])
def test_an_interrupted_sweep_stops_with_its_current_run_and_goes_on_when_it_is_run_again(
    alone: bool, tmp_path: Path
) -> None:
    jobs = ["-m", "seed=1,2", "total_timesteps=100_000", "checkpoint.every_iterations=5", f"outputs={tmp_path}"]
    with started(*jobs, start_new_session=True) as run:
        wait_until(run, lambda: any(tmp_path.glob("default/*/seed1/checkpoints/iteration_*")))
        if alone:  # the sweep, and not the training that it has started
            run.send_signal(signal.SIGUSR1)
        else:
            os.killpg(run.pid, signal.SIGINT)
        _, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
    assert error.splitlines()[-1] == "ppo_bench: the sweep stopped; the same command goes on with what is missing"
    assert error.count("ppo_bench: the sweep stops after the iteration in progress") == 1
    assert "Traceback" not in error
    assert not any(tmp_path.glob("default/*/seed2"))


def test_a_sweep_whose_processes_are_killed_goes_on_where_they_were_and_runs_nothing_twice(tmp_path: Path) -> None:
    words = ["seed=1,2,3", *LONG, f"outputs={tmp_path}"]
    folders = [run_folder(f"seed={seed}", *LONG, f"outputs={tmp_path}") for seed in (1, 2, 3)]
    with started("-m", *words) as sweep:
        wait_until(sweep, lambda: has_checkpoint(folders[0]))
        for process in (sweep.pid, *children(sweep.pid)):
            os.kill(process, signal.SIGKILL)
        sweep.communicate()
    assert not (folders[0] / "result.json").exists()

    with started("-m", *words) as sweep:
        wait_until(sweep, lambda: has_checkpoint(folders[1]))
        first = (folders[0] / "result.json").stat()
        (job,) = children(sweep.pid)
        os.kill(job, signal.SIGSTOP)
        os.kill(sweep.pid, signal.SIGKILL)
    with started("-m", *words) as sweep:
        assert sweep.stderr
        lines = [sweep.stderr.readline() for _ in range(4)]
        os.kill(job, signal.SIGCONT)
        assert lines[2].startswith("ppo_bench: job 1: seed=2 ")
        assert lines[3] == f"ppo_bench: waiting for {folders[1]}, which is being trained by another process\n"
        said = sweep.communicate()[1]
    assert "resuming" not in said, "the job without its sweep has come to its end"
    assert said.splitlines()[-1] == "ppo_bench: 1 done, 0 failed, 2 skipped"
    assert (folders[0] / "result.json").stat() == first
    for folder in folders:
        assert [row["iteration"] for row in rows(folder)] == list(range(1, 31))
    assert states(tmp_path) == [("done", "seed1"), ("skipped", "seed1"), ("skipped", "seed2"), ("done", "seed3")]


def test_jobs_side_by_side_fail_alone(tmp_path: Path) -> None:
    """By submitit; test_hydra.py has joblib's launcher."""
    overrides = [*GYM, *SHORT, f"outputs={tmp_path}"]
    jobs = ["hydra/launcher=submitit_local", "ppo.learning_rate=0.001,1e30", "seed=1", *overrides]
    # In a process of its own: launchers have their way with a process's signals and files.
    sweep = subprocess.run([*TRAIN, "-m", *jobs], check=False, cwd=ROOT, capture_output=True, text=True)
    assert sweep.returncode == 1
    *_, done, failed, last = sweep.stderr.splitlines()
    assert (done.split()[0], failed.split()[0]) == ("done", "failed")
    assert "learning diverged" in failed
    assert last == "ppo_bench: 1 done, 1 failed, 0 skipped"


def test_optuna_maximises_the_final_return_and_trains_no_trial_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "hydra/sweeper=optuna_maximize",
        "hydra.sweeper.n_trials=2",
        "ppo.learning_rate=tag(log,interval(1e-4,1e-2))",
    ]
    arguments = ["-m", *words, *GYM, "total_timesteps=2048", f"outputs={tmp_path}"]
    assert exit_code(main, arguments) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1] == "ppo_bench: 2 done, 0 failed, 0 skipped"
    results = [json.loads(path.read_text()) for path in tmp_path.glob("default/*/seed1/result.json")]
    returns = [result["final_return_mean"] for result in results]
    assert len(set(returns)) == 2
    assert sorted(line.split()[-1] for line in lines[-3:-1]) == sorted(f"{value:.2f}" for value in returns)
    (best,) = tmp_path.glob(".sweeps/*/optimization_results.yaml")
    assert f"best_value: {max(returns)}" in best.read_text()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert exit_code(main, arguments) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 0 failed, 2 skipped"


def test_the_value_of_a_job_is_the_mean_of_its_seeds(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("seed1", "seed2")]
    for folder, value in zip(folders, (1.0, 4.0), strict=True):
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({"final_return_mean": value}))
    assert final_return(folders) == 2.5
    (folders[1] / "result.json").write_text(json.dumps({"final_return_mean": None}))
    assert final_return(folders) is None


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of a user's own YAML files, under a path with all that Hydra's grammar has a use for."""
    folder = tmp_path / "jürgen's, (old) [conf]"
    (folder / "experiment").mkdir(parents=True)
    (folder / "launch").mkdir()
    sweep = "hydra: {sweeper: {params: {seed: '1,2'}}}\n"
    text = f"# @package _global_\nname: own\nppo: {{num_envs: 2, num_steps: 16}}\ntotal_timesteps: 64\n{sweep}"
    (folder / "experiment" / "mine.yaml").write_text(text)
    (folder / "launch" / "lab.yaml").write_text("defaults: [cpu]\ncpus: 3\n")
    return folder


def test_an_experiment_of_one_s_own_is_run_and_swept(
    own: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--config-dir", str(own), "experiment=mine", f"outputs={tmp_path / 'o'}"]
    assert_refused(main, words, "this experiment is a sweep over seed: run it by -m", capfd)
    assert exit_code(main, ["-m", *words]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "ppo_bench: 2 done, 0 failed, 0 skipped"
    assert sorted(path.parent.name for path in (tmp_path / "o" / "own").rglob("result.json")) == ["seed1", "seed2"]
    assert exit_code(main, [*words, "seed=3"]) == 0


def test_slurm_finds_one_s_own_files_and_refuses_hydra_s_own_words(
    own: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--dry-run", "--config-dir", str(own), "experiment=mine", "launch=lab", f"outputs={tmp_path / 'o'}"]
    assert exit_code(submit, words) == 0
    assert "2 of 2 runs would be submitted, 2 jobs of 3 CPU" in capfd.readouterr().err
    assert_refused(submit, [*words, "hydra/launcher=slurm"], "Hydra's own keys are for sweeps by -m", capfd)
