"""SLURM submission without SLURM: wrong input, dry runs, states read from files. The rest is in tests/slurm."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import write_json
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.slurm import ledger, status
from ppo_bench.sweeps.slurm.resources import load_launch, split
from ppo_bench.sweeps.slurm.submit import main
from tests.refusals import assert_one_line

RUN = ["env=cartpole", "backend=gymnasium", "total_timesteps=1024"]
TWO, FOUR = (f"launch.nodes=2 devices={count} ppo.shards=4" for count in (2, 4))

WRONG = {
    "launch=nowhere": "launch/nowhere",
    "launch=null": "launch=null",
    "launch.cpu=2": "unknown key launch.cpu; did you mean cpus?",
    "launch.nonsense=2": "unknown key launch.nonsense; did you mean nodes?",
    "launch.cpus=many": "launch.cpus=many: Value 'many'",
    "launch.cpus=1,2": "launch.cpus=1,2",
    "launch.cpus=0": "launch.cpus=0: must be at least 1",
    "launch.gpus=-1": "launch.gpus=-1: must not be negative",
    "launch.gpus=null": "launch.gpus=null: ",
    "launch.memory_gb=0": "launch.memory_gb=0.0: must be a number of at least 0.001",
    "launch.memory_gb=inf": "launch.memory_gb=inf: must be a number of at least 0.001",
    "framework=jax_xla backend=device num_seeds=2 seed=1,2": "seed2 would be trained by two jobs at once",
    "launch.time_minutes=0": "launch.time_minutes=0: must be at least 1",
    "launch.time_minutes=2": "launch.time_minutes=2: must be over launch.signal_seconds=60 and a minute more",
    "launch.array_parallelism=0": "launch.array_parallelism=0: must be at least 1",
    "launch.setup=ls": "launch.setup=ls: ",
    "launch.sbatch=3": "launch.sbatch=3: ",
    "~launch.cpus": "launch.cpus: ",
    "launch.nodes=0": "launch.nodes=0: must be at least 1",
    "launch.nodes=2": "launch.nodes=2 does not divide devices=1: add devices=2 or a multiple, and ppo.shards that",
    f"{TWO} device=cuda": "device=cuda needs a GPU: use launch=gpu or launch.gpus=1",
    f"{FOUR} launch.cpus=1": "launch.cpus=1: devices=4 takes 2 CPUs of a node, one for each",
    f"{FOUR} launch.cpus=3": "launch.cpus=3: the 2 tasks of a node divide them: choose a multiple",
    f"{FOUR} launch=gpu": "launch.gpus=1: devices=4 takes 2 GPUs of a node",
    f"{FOUR} framework=torch_eager,jax_xla": "need different numbers of tasks on a node: submit each framework by",
    "devices=4 ppo.shards=4": "launch.cpus=2: devices=4 takes 4 CPUs of a node, one for each",
    "seed=1,2 ppo.gamma=0.9,1.5": "ppo.gamma=1.5: must lie between 0 and 1",
    "ppo.gama=0.9": "unknown key ppo.gama; did you mean gamma?",
    "name=a outputs=a,b": "outputs=a,b: one submission has one folder of outputs",
    "--now": "--now",
    "seed=1,2 env.id=Nothing-v0": "Nothing-v0 on backend=gymnasium raises NameNotFound: ",
}


@pytest.mark.parametrize(("text", "fragment"), WRONG.items(), ids=list(WRONG))
def test_wrong_input_is_one_line_and_submits_nothing(
    text: str, fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(main, [*RUN, *text.split(" ")]) == 2
    printed = capfd.readouterr()
    assert_one_line(printed.err, fragment)
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, f"outputs={tmp_path}/outputs"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert exit_code(main, words) == 2
    assert_one_line(capfd.readouterr().err, "SLURM needs sbatch, which is not on this machine's PATH")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "submitit" else real(name, *a))
    assert exit_code(main, words) == 2
    assert_one_line(
        capfd.readouterr().err, "SLURM needs submitit, which is not installed: pip install 'ppo-bench[slurm]'"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_names_every_run_once_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = tmp_path / "outputs"
    done = load_config([*RUN, "seed=2", f"outputs={outputs}"]).run_folder
    done.mkdir(parents=True)
    (done / "result.json").touch()
    words = [*RUN, "seed=1,2,3,3", f"outputs={outputs}", "launch=gpu", "--dry-run"]
    assert exit_code(main, words) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()[1:]]
    assert [(words[0], Path(words[1]).name) for words in lines] == [
        ("submit", "seed1"),
        ("done", "seed2"),
        ("submit", "seed3"),
    ]
    assert "2 of 3 runs would be submitted, 2 jobs of 8 CPU, 1 GPU, 32 GB, 240 minutes" in printed.err
    assert not (outputs / ".slurm").exists()


@pytest.mark.parametrize(
    ("framework", "devices", "asked"),
    [
        ("torch_eager", 2, "2 nodes, each 1 task, 2 CPU, 0 GPU, 4 GB, 240 minutes"),
        ("torch_eager", 4, "2 nodes, each 2 tasks, 2 CPU, 0 GPU, 4 GB, 240 minutes"),
        ("jax_xla", 4, "2 nodes, each 1 task, 2 CPU, 0 GPU, 4 GB, 240 minutes"),
    ],
)
def test_a_dry_run_on_several_nodes_says_what_would_be_asked_for(
    framework: str, devices: int, asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where this machine, from which is submitted, has fewer cores than the nodes."""
    words = [*RUN, f"framework={framework}", f"outputs={tmp_path}", "launch.nodes=2", f"devices={devices}"]
    assert exit_code(main, [*words, "ppo.shards=4", "--dry-run"]) == 0
    assert f"1 of 1 runs would be submitted, 1 job of {asked} on the default partition" in capsys.readouterr().err


def test_every_launch_file_keeps_the_schema_and_the_command_line_has_the_last_word() -> None:
    for path in (CONF / "launch").glob("*.yaml"):
        assert load_launch([f"launch={path.stem}", "launch.cpus=3"]).cpus == 3
    assert load_launch(["launch.sbatch.account=lab", "+launch.sbatch.qos=high"]).sbatch == {
        "account": "lab",
        "qos": "high",
    }
    assert split(["seed=1,2", "launch=gpu", "++launch.cpus=1", "name=launch"]) == (
        ["launch=gpu", "++launch.cpus=1"],
        ["seed=1,2", "name=launch"],
    )


def test_options_of_sbatch_that_are_null_or_false_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    executor = SimpleNamespace(update_parameters=given.update, map_array=lambda *_: [SimpleNamespace(job_id="7_0")])
    monkeypatch.setattr("ppo_bench.sweeps.slurm.submit.require_slurm", lambda: None)
    monkeypatch.setattr("submitit.SlurmExecutor", lambda *_, **__: executor)
    words = ["launch.sbatch.account=null", "launch.sbatch.requeue=false", "launch.sbatch.nice=0"]
    assert exit_code(main, [*RUN, *words, f"outputs={tmp_path}"]) == 0
    assert given["additional_parameters"] == {"nice": 0}


@pytest.fixture(autouse=True)
def handlers_of_logging_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As submitit configures logging when it is imported, absl's handler would close the file that pytest writes to."""
    monkeypatch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")


def ended(jobs: Path, job: str, trace: str) -> None:
    """Leave what submitit leaves of a job that raised an error."""
    (jobs / f"{job}_0_result.pkl").write_bytes(pickle.dumps(("error", f"Traceback:\n  ...\nsome.Error: {trace}\n")))


def test_without_squeue_files_tell_what_is_done_and_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.jobs_folder(tmp_path).mkdir(parents=True)
    ledger.record(tmp_path, {"a/seed1": "7_0", "a/seed2": "7_1", "a/seed3": "7_2"})
    ended(ledger.jobs_folder(tmp_path), "7_1", "killed by SIGKILL")
    (tmp_path / "a" / "seed1").mkdir(parents=True)
    write_json(tmp_path / "a" / "seed1" / "result.json", {"global_step": 2048, "mean_sps": 1234.5})
    monkeypatch.setenv("PATH", str(tmp_path))
    with monkeypatch.context() as without:
        real = importlib.util.find_spec
        without.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "submitit" else real(name, *a))
        with pytest.raises(ConfigError, match="needs submitit, which is not installed: pip install"):
            status.statuses(tmp_path)
    assert status.statuses(tmp_path) == [
        ("done", "a/seed1", "7_0", ""),
        ("failed", "a/seed2", "7_1", f"killed by SIGKILL; see {ledger.jobs_folder(tmp_path)}/7_1_0_log.out"),
        ("unknown", "a/seed3", "7_2", "squeue is not on the PATH of this machine"),
    ]


def test_a_program_of_several_runs_is_done_when_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without squeue
    ledger.jobs_folder(tmp_path).mkdir(parents=True)
    ledger.record(tmp_path, {"a/seed1": "7", "a/seed2": "7"})
    ended(ledger.jobs_folder(tmp_path), "7", "1 of 2 runs failed: seed 2")
    for run, state in (("seed1", "failed"), ("seed2", "done")):
        (tmp_path / "a" / run).mkdir(parents=True)
        write_json(tmp_path / "a" / run / "result.json", {"global_step": 2048, "mean_sps": 1234.5})
        (found,) = status.statuses(tmp_path)
        assert (found.state, found.folder) == (state, "a/seed2" if state == "failed" else "a/seed1")


def test_the_latest_job_of_a_run_counts(tmp_path: Path) -> None:
    ledger.jobs_folder(tmp_path).mkdir(parents=True)
    ledger.record(tmp_path, {"a/seed1": "8_0", "a/seed2": "8_1"})
    ledger.record(tmp_path, {"a/seed1": "9"})
    assert ledger.job_of_run(tmp_path) == {"a/seed2": "8_1", "a/seed1": "9"}


def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    path = CONF.parent / "launch" / "slurm.py"
    process = subprocess.run(
        [sys.executable, str(path), "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "launch/slurm.py" in process.stdout
