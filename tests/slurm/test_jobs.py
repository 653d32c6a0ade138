"""Jobs that fail, are told to end, are not requeued or never end; Hydra's launcher; the commands of docs/slurm.md."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.slurm.status import statuses
from ppo_bench.sweeps.slurm.submit import main
from tests import documented
from tests.refusals import assert_one_line
from tests.slurm.cluster import slurm, wait_for, wait_for_an_empty_queue
from tests.slurm.conftest import Runs, python
from tests.training import ROOT

RUN = ["env=cartpole", "backend=gymnasium", "checkpoint.every_iterations=5"]
SHORT, ENDLESS = "total_timesteps=20480", "total_timesteps=100000000"


def damage(outputs: Path, *overrides: str) -> None:
    """Make a run fail: the only checkpoint that it could resume from is not whole."""
    folder = load_config([*overrides, f"outputs={outputs}"]).run_folder
    (folder / "checkpoints" / "iteration_00000005").mkdir(parents=True)


def test_a_job_that_is_told_to_end_goes_on_and_one_that_fails_does_not(runs: Runs) -> None:
    sweep = [*RUN, "total_timesteps=40960"]
    damage(runs.outputs, *sweep, "seed=1")
    said = runs.launch(*sweep, "seed=1,2")
    assert "2 of 2 runs submitted" in said
    assert "2 jobs of 1 CPU" in said
    runs.wait_for_checkpoint("seed2")
    # Preemption without a signal of its own: SIGTERM, and SLURM leaves it at that until the period of grace is over.
    slurm("scancel", "--signal=TERM", runs.status()["seed2"].job)
    runs.wait("the job queued again", lambda s: s["seed2"].remarks.endswith("requeues: 1"))
    status = runs.wait_until_idle()
    assert [status[run].state for run in ("seed1", "seed2")] == ["failed", "done"]
    assert "is damaged" in status["seed1"].remarks
    assert runs.log(status["seed1"]).count("Starting with JobEnvironment") == 1
    assert "resuming" in runs.log(status["seed2"])
    assert "1 of 2 runs would be submitted" in runs.launch(*sweep, "seed=1,2", "--dry-run")


def wait_for_progress(runs: Runs) -> None:
    steps = runs.status()["seed1"].steps
    runs.wait("progress", lambda s: s["seed1"].steps > steps)


def test_time_limits_without_end_and_cancelled_jobs_are_failures(runs: Runs) -> None:
    # submitit takes every signal for the time limit's where that is less than ten minutes.
    limits = ["launch.time_minutes=9", "launch.max_timeouts=1"]
    runs.launch(*RUN, ENDLESS, "seed=1,2", *limits)
    for run in ("seed1", "seed2"):
        runs.wait_for_checkpoint(run)
    job, cancelled = (runs.status()[run].job for run in ("seed1", "seed2"))
    slurm("scancel", "--signal=USR2", job)
    slurm("scancel", cancelled)
    status = runs.wait("one queued again, one cancelled", lambda s: s["seed2"].state == "failed")
    assert status["seed2"].remarks.startswith("its job ended without a result; see ")
    assert " CANCELLED AT " in runs.log(status["seed2"])
    runs.wait("resuming", lambda s: s["seed1"].state == "running" and "resuming" in runs.log(s["seed1"]))
    runs.wait("the second try", lambda s: s["seed1"].remarks == "requeues: 1")
    wait_for_progress(runs)
    slurm("scontrol", "requeue", job)
    runs.wait("queued again by SLURM", lambda s: s["seed1"].remarks.endswith("requeues: 2"))
    wait_for_progress(runs)
    slurm("scancel", "--signal=USR2", job)
    status = runs.wait("given up", lambda s: s["seed1"].state == "failed")
    assert "timed-out too many times" in status["seed1"].remarks
    assert status["seed2"].state == "failed"
    wait_for_an_empty_queue()
    assert "2 of 2 runs submitted" in runs.launch(*RUN, ENDLESS, "seed=1,2", *limits)


def test_hydras_launcher_counts_results_and_its_jobs_requeue_too(tmp_path: Path) -> None:
    outputs = tmp_path / "runs"
    sweep = [*RUN, "total_timesteps=40960", f"outputs={outputs}"]
    damage(outputs, *sweep, "seed=2")
    resources = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1"]
    command = ["-m", "ppo_bench", "-m", *resources, *sweep]
    with ThreadPoolExecutor(1) as pool:
        launcher = pool.submit(python, *command, "seed=1,2")
        wait_for("a checkpoint", lambda: list(outputs.glob("default/*/seed1/checkpoints/iteration_*")))
        first = min(slurm("squeue", "-h", "-r", "-t", "running", "-o", "%i").split())
        slurm("scancel", "--signal=TERM", first)
        process = launcher.result()
    assert process.returncode == 1
    lines = process.stderr.splitlines()
    assert lines[-1] == "ppo_bench: 1 done, 1 failed, 0 skipped"
    assert ["failed", "seed=2"] in [line.split()[:2] for line in lines]
    logs = "".join(path.read_text() for path in outputs.glob(".sweeps/*/.submitit/*.err"))
    assert "resuming" in logs


def test_what_slurm_refuses_is_one_line_and_not_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [*RUN, SHORT, f"outputs={tmp_path}", "launch.partition=nowhere"]) == 2
    said = "SLURM does not take the job: invalid partition specified: nowhere"
    assert_one_line(capfd.readouterr().err, said)
    assert not (tmp_path / ".slurm" / "submitted.json").exists()


def test_the_commands_of_the_page_submit_the_runs_that_they_promise(tmp_path: Path) -> None:
    marked = [block for block in documented.blocks(ROOT / "docs" / "slurm.md") if block.kind == "slurm"]
    said = [documented.run(block, tmp_path) for block in marked]
    assert [done.returncode for done in said] == [0, 0], said
    launched, several_nodes = (done.stderr.splitlines() for done in said)
    assert launched[0].startswith("ppo_bench: 6 of 6 runs would be submitted")
    assert launched[1].startswith("ppo_bench: 6 of 6 runs submitted")
    assert "1 of 1 runs would be submitted, 1 job of 2 nodes" in several_nodes[-1]
    wait_for_an_empty_queue()
    assert [run.state for run in statuses(tmp_path / "outputs")] == ["done"] * 6
