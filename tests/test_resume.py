"""A run that is stopped, killed or damaged continues and ends like an uninterrupted one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.runs.loop_state import LoopState
from tests.processes import TRAIN, count_rows, has_checkpoint, started, wait_until
from tests.refusals import assert_untrained
from tests.training import BATCH, ENVIRONMENT, EVERY, ITERATIONS, ROOT, RUN, learnt, rows, run_folder, snapshot


def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a signal; test_faults.py kills."""
    arguments = [*RUN, f"outputs={tmp_path}"]
    folder = run_folder(*arguments)
    with started(*arguments, stdout=subprocess.PIPE) as run:
        wait_until(run, lambda: has_checkpoint(folder))
        run.send_signal(signal.SIGUSR2)
        _, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
    assert not (folder / "result.json").exists()
    newest = max(int(path.name.removeprefix("iteration_")) for path in (folder / "checkpoints").glob("iteration_*"))
    assert EVERY <= newest < ITERATIONS
    stopped = re.fullmatch(r"ppo_bench: stopped after iteration (\d+); (.*)", error.splitlines()[-1])
    assert stopped, error
    assert newest <= int(stopped[1]) < newest + EVERY
    assert stopped[2] == f"{folder} is kept up to iteration {newest}; the same command resumes there"
    assert exit_code(main, arguments) == 0
    printed = capfd.readouterr()
    assert f"resuming {folder} after iteration {newest} of {ITERATIONS}" in printed.err
    assert "warning" not in printed.err
    assert learnt(folder) == learnt(finished)
    seconds = [row["wall_seconds"] for row in rows(folder)]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("in_program", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_before_its_first_checkpoint_says_so(in_program: bool, tmp_path: Path) -> None:
    """In a program, more iterations may be on the device."""
    backend = ["framework=jax_xla", "backend=device"] if in_program else []
    arguments = ["env=cartpole", *backend, "checkpoint.every_iterations=900", f"outputs={tmp_path}"]
    folder = run_folder(*arguments)
    with started(*arguments) as run:
        wait_until(run, lambda: count_rows(folder) >= 7)
        run.send_signal(signal.SIGTERM)
        _, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
    iteration = len(rows(folder))
    said = f"stopped after iteration {iteration}; no checkpoint yet; the same command starts from scratch"
    assert error.splitlines()[-1] == f"ppo_bench: {said}"


@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_run_stops_it_as_one_to_the_run_does(tmp_path: Path) -> None:
    """As `timeout` sends it, and as a job of SLURM gets it: it ends the processes of the environments at once."""
    arguments = [*RUN, "backend.vectorization=async", "total_timesteps=1_000_000", f"outputs={tmp_path}"]
    folder = run_folder(*arguments)
    with started(*arguments, start_new_session=True) as run:
        wait_until(run, lambda: has_checkpoint(folder))
        os.killpg(run.pid, signal.SIGTERM)
        _, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
    assert "the same command resumes there" in error.splitlines()[-1]


@pytest.mark.slow
def test_a_signal_while_a_run_starts_is_said(tmp_path: Path) -> None:
    with started(*RUN, f"outputs={tmp_path}", by=[sys.executable, "-X", "importtime", *TRAIN[1:]]) as run:
        assert run.stderr is not None
        for line in iter(run.stderr.readline, ""):
            if line.endswith(" torch._C\n"):  # imports are written as they end: more are to come
                break
        run.send_signal(signal.SIGUSR1)
        last = run.stderr.readlines()[-1]
    assert last == "ppo_bench: stopped at once\n"
    assert run.returncode == 130
    assert_untrained(tmp_path)


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_leads_to_the_same_end(
    finished: Path, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copied / "result.json").unlink()
    newest = copied / "checkpoints" / f"iteration_{ITERATIONS:08d}"
    data = (newest / "arrays.safetensors").read_bytes()
    (newest / "arrays.safetensors").write_bytes(data[: len(data) // 2])
    before = snapshot(copied)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 2
    assert f"{newest} is damaged" in capfd.readouterr().err
    assert snapshot(copied) == before
    shutil.rmtree(newest)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    assert f"resuming {copied} after iteration {ITERATIONS - EVERY} of {ITERATIONS}" in capfd.readouterr().err
    assert learnt(copied) == learnt(finished)


def test_a_run_without_a_checkpoint_starts_over(
    finished: Path, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copied / "result.json").unlink()
    shutil.rmtree(copied / "checkpoints")
    (copied / "run.json").write_text("{}")
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    assert "resuming" not in capfd.readouterr().err
    assert learnt(copied) == learnt(finished)
    assert json.loads((copied / "run.json").read_text())["config"]["total_timesteps"] == ITERATIONS * BATCH + 100


def test_a_run_that_was_stopped_before_its_result_only_writes_that(copied: Path) -> None:
    before = json.loads((copied / "result.json").read_text())
    (copied / "result.json").unlink()
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    after = json.loads((copied / "result.json").read_text())
    differing = ("setup_seconds", "peak_memory_bytes", "load_average", "resumes")
    assert (before["resumes"], after["resumes"]) == (0, 1)
    assert {key: after[key] for key in after if key not in differing} == {
        key: before[key] for key in before if key not in differing
    }


def test_counters_of_other_versions_are_ignored() -> None:
    assert LoopState.from_checkpoint({"iteration": 3, "moons": 2}) == LoopState(iteration=3)


def test_a_finished_run_is_reported_and_not_touched(copied: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = snapshot(copied)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    printed = capfd.readouterr()
    mean = json.loads((copied / "result.json").read_text())["final_return_mean"]
    assert printed.out.splitlines()[-1] == str(copied)
    assert printed.err.splitlines() == [
        f"ppo_bench: {copied} is done: final_return_mean {mean:.2f}; rerun=true trains again in a new folder"
    ]
    assert snapshot(copied) == before


def test_a_rerun_trains_afresh_beside_the_run_and_learns_the_same(
    copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(copied)
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}", "rerun=true"]) == 0
    beside = copied.with_name("seed1-rerun2")
    assert capfd.readouterr().out.splitlines()[-1] == str(beside)
    assert learnt(beside) == learnt(copied)
    assert snapshot(copied) == before


@pytest.mark.parametrize("complete", [True, False], ids=["finished", "resumed"])
def test_versions_and_hardware_that_differ_are_named(
    complete: bool, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((copied / "run.json").read_text())
    run["versions"]["torch"], run["hardware"]["cores"] = "1.0.0", 999
    (copied / "run.json").write_text(json.dumps(run))
    if not complete:
        (copied / "result.json").unlink()
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == 0
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert "torch: 1.0.0 -> 2." in warning
    assert f"cores: 999 -> {os.cpu_count()}" in warning


@pytest.mark.parametrize(("name", "code"), [("result.json", 2), ("run.json", 0)])
def test_a_damaged_file_of_a_finished_run_is_named(
    name: str, code: int, copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copied / name).write_text("{")
    assert exit_code(main, [*RUN, f"outputs={copied.parents[2]}"]) == code
    assert f"{copied / name} is damaged" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_parameters(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = ENVIRONMENT | {"PATH": path, "STEPS": "40000"}
    demo = subprocess.run(
        [ROOT / "launch" / "demo_resume.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stderr
    assert re.search(r"killed after iteration \d+", demo.stdout)
    assert "resuming" in demo.stderr
    assert demo.stdout.endswith("the same parameters, bit for bit\n")
