"""How sweeps end where nobody reads them, a process ends badly, or paths and experiments are the user's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.sweeps.slurm.submit import main as submit
from tests.processes import has_checkpoint, started, wait_until
from tests.refusals import assert_one_line
from tests.test_sweep import LONG, states
from tests.training import run_folder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clone")]


def test_a_sweep_that_nobody_reads_is_stopped_by_one_signal(tmp_path: Path) -> None:
    words = ["seed=1,2,3", *LONG, f"outputs={tmp_path}"]
    folder = run_folder("seed=1", *LONG, f"outputs={tmp_path}")
    with started("-m", *words, start_new_session=True) as sweep:
        assert sweep.stderr
        sweep.stderr.readline()
        sweep.stderr.close()  # as `2>&1 | head` does
        wait_until(sweep, lambda: has_checkpoint(folder))
        os.killpg(sweep.pid, signal.SIGINT)
        assert sweep.wait(timeout=120) == 130
    assert states(tmp_path) == []
    assert not any(tmp_path.glob("default/*/seed2"))


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
    assert exit_code(main, words) == 2
    assert_one_line(capfd.readouterr().err, "this experiment is a sweep over seed: run it by -m")
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
    assert exit_code(submit, [*words, "hydra/launcher=slurm"]) == 2
    assert_one_line(capfd.readouterr().err, "hydra/launcher=slurm: Hydra's own keys are for sweeps by -m")
