"""Six runs on SLURM, four of which are disturbed, each differently: all end with the results of undisturbed runs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.slurm.cluster import slurm
from tests.slurm.conftest import Line, Runs, python
from tests.training import rows

STEPS = 40_960
SWEEP = ["env=cartpole", "backend=gymnasium", f"total_timesteps={STEPS}", "checkpoint.every_iterations=5"]
SEEDS = [f"seed{seed}" for seed in range(1, 7)]
OWN = {"wall_seconds", "setup_seconds", "steady_sps", "mean_sps", "sps", "peak_memory_bytes", "load_average", "resumes"}
"""What differs between an undisturbed run and one that was disturbed."""


def test_runs_that_are_preempted_timed_out_requeued_and_killed_end_as_they_would_have_without(
    runs: Runs, tmp_path: Path
) -> None:
    assert "6 of 6 runs submitted" in runs.launch(*SWEEP, "seed=range(1,7)")
    with without_slurm(tmp_path / "reference") as reference:
        disturbed = disturb_four(runs)
        status = runs.wait_until_idle()
        assert states(status) == {"done": 5, "failed": 1}, status
        assert "1 of 6 runs submitted" in runs.launch(*SWEEP, "seed=range(1,7)")
        assert states(runs.status()) in ({"done": 5, "queued": 1}, {"done": 5, "running": 1})
        status = runs.wait_until_idle()
        assert states(status) == {"done": 6}, status
        assert {line.steps for line in status.values()} == {STEPS}
        assert "0 of 6 runs submitted" in runs.launch(*SWEEP, "seed=range(1,7)")
        for run in SEEDS:
            resumed = f"resuming {runs.folder(run)} after iteration" in runs.log(status[run])
            assert resumed == (run in disturbed), run
            assert left_behind(runs.folder(run)) == left_behind(reference[run].result()), run


@contextmanager
def without_slurm(outputs: Path) -> Iterator[dict[str, Future[Path]]]:
    """The same six runs, one after the other, meanwhile: their folders."""

    def train(run: str) -> Path:
        process = python("-m", "ppo_bench", *SWEEP, run.replace("seed", "seed="), f"outputs={outputs}")
        assert process.returncode == 0, process.stderr
        return Path(process.stdout.splitlines()[-1])

    with ThreadPoolExecutor(1) as pool:
        yield {run: pool.submit(train, run) for run in SEEDS}
        pool.shutdown(cancel_futures=True)


def disturb_four(runs: Runs) -> set[str]:
    """Preempt a run, let one hang until its time limit, requeue one, kill one: which."""
    status = runs.wait("two runs running", lambda s: states(s) == {"running": 2, "queued": 4})
    assert list(status) == SEEDS
    assert {line.remarks for line in status.values() if line.state == "queued"} <= {"Resources", "Priority", "None"}
    # The others wait until it is their turn: a fast machine would end them while another run hangs.
    job = {run: status[run].job for run in SEEDS}
    slurm("scontrol", "hold", ",".join(job[run] for run in SEEDS[2:]))

    # A job of higher priority needs a CPU. Which run gives way is SLURM's choice; neither is to end before that.
    with ThreadPoolExecutor(2) as pool:  # whichever is first
        processes = dict(zip(SEEDS[:2], pool.map(partial(stop_at_its_checkpoint, runs), SEEDS[:2]), strict=True))
    assert "0 of 6 runs submitted" in runs.launch(*SWEEP, "seed=range(1,7)")
    slurm("sbatch", "--partition=high", "--ntasks=1", "--output=/dev/null", "--wrap=sleep 1")
    status = runs.wait("one run preempted", requeued)
    (preempted,) = requeued(status)
    (other,) = processes.keys() - {preempted}
    os.kill(processes[other], signal.SIGCONT)

    timed_out, again, killed, in_peace = SEEDS[2:]
    slurm("scontrol", "release", job[timed_out])
    stop_at_its_checkpoint(runs, timed_out)  # hangs until its time limit of now a minute
    slurm("scontrol", "update", f"JobId={job[timed_out]}", "TimeLimit=1")
    runs.wait(f"{timed_out} queued again", lambda s: "requeues: 1" in s[timed_out].remarks)
    slurm("scontrol", "update", f"JobId={job[timed_out]}", "TimeLimit=240")

    slurm("scontrol", "release", job[again])
    stop_at_its_checkpoint(runs, again)
    slurm("scontrol", "requeue", job[again])
    status = runs.wait(f"{again} queued again", lambda s: "requeues: 1" in s[again].remarks)
    assert 0 < status[again].steps <= STEPS == status[again].total

    slurm("scontrol", "release", job[killed])
    os.kill(stop_at_its_checkpoint(runs, killed), signal.SIGKILL)
    status = runs.wait(f"{killed} failed", lambda s: s[killed].state == "failed")
    assert status[killed].remarks.startswith("killed by SIGKILL; see ")
    slurm("scontrol", "release", job[in_peace])
    return {preempted, timed_out, again, killed}


def stop_at_its_checkpoint(runs: Runs, run: str) -> int:
    """Stop a run soon after its first checkpoint, long before its end: its process."""
    runs.wait_for_checkpoint(run)
    process = runs.process(run)
    assert process, run
    os.kill(process, signal.SIGSTOP)
    return process


def states(status: dict[str, Line]) -> dict[str, int]:
    found = [line.state for line in status.values()]
    return {state: found.count(state) for state in found}


def requeued(status: dict[str, Line]) -> set[str]:
    return {run for run, line in status.items() if "requeues" in line.remarks}


def left_behind(folder: Path) -> dict[str, Any]:
    """All that a run learnt and recorded, less times."""
    newest = max((folder / "checkpoints").iterdir())
    return {
        "result": timeless(json.loads((folder / "result.json").read_text())),
        "metrics": [timeless(row) for row in rows(folder)],
        "episodes": (folder / "episodes.jsonl").read_text(),
        "checkpoint": newest.name,
        "parameters": (newest / "arrays.safetensors").read_bytes(),
    }


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in OWN}
