"""`ppo-bench watch`: its table shows the state in the runs' files, whatever these files contain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppo_bench.__main__ import main as train
from ppo_bench.commands.report.folders import read
from ppo_bench.commands.watch import RunRow, find_rows, look, main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError, RunInterrupted
from ppo_bench.common.rows import last_rows
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.results import Progress, error_of, lock_run_folder
from tests.processes import started, wait_until
from tests.refusals import assert_one_line
from tests.training import GYM, SHORT, rows


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "outputs" / finished.parent.name / "seed1"))


@pytest.fixture
def training(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    words = ["seed=2", *GYM, "total_timesteps=1_000_100", f"outputs={tmp_path}"]
    folder = load_config(words).run_folder
    with started(*words) as process:
        wait_until(process, lambda: len(last_rows(folder / "episodes.jsonl", 100)) >= 100)
        yield process, folder


def test_a_run_is_running_until_it_is_killed(
    training: tuple[subprocess.Popen[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process, folder = training
    os.kill(process.pid, signal.SIGSTOP)  # so that the files stay as they are
    (row,) = find_rows(tmp_path)
    last = rows(folder)[-1]
    returns = [row["return"] for row in rows(folder, "episodes")[-100:]]
    assert row.run
    assert row.progress
    assert (row.state, row.run.env, row.run.backend, row.run.framework, row.run.seed) == (
        *("running", "cartpole", "gymnasium", "torch_eager"),
        2,
    )
    assert (row.progress.step, row.progress.total, row.progress.sps) == (
        last["global_step"],
        1_000_100 // 512 * 512,
        last["sps"],
    )
    assert row.mean_return == pytest.approx(sum(returns) / 100)
    assert row.seconds_left == pytest.approx((row.progress.total - row.progress.step) / last["sps"])
    assert exit_code(main, [str(tmp_path)]) == 0
    first, header, line = capsys.readouterr().out.splitlines()
    assert first == "1 run: 1 running"
    assert " ".join(header.split()) == "state env backend framework seed step of return SPS left folder"
    assert line.split()[:7] == [
        "running",
        "cartpole",
        "gymnasium",
        "torch_eager",
        "2",
        f"{row.progress.step:,}",
        "999,936",
    ]
    assert line.split()[-1] == folder.relative_to(tmp_path).as_posix()
    process.kill()
    process.wait()
    (row,) = find_rows(tmp_path)
    assert (row.state, row.seconds_left) == ("stopped", None)


def test_a_finished_run_shows_its_result(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    (row,) = find_rows(finished)  # a run folder itself
    progress = Progress(15_360, 15_360, result["mean_sps"])
    assert row == RunRow(finished, "done", read(finished), progress, result["final_return_mean"])


@pytest.mark.parametrize(
    ("file", "content", "remark"),
    [
        ("run.json", "{", "run.json is damaged"),
        ("run.json", '{"schema_version": 1, "config": {}}', "run.json does not describe a run: KeyError"),
        ("result.json", "{}", "result.json has schema_version None"),
        ("metrics.jsonl", "not a row\n", "metrics.jsonl is damaged"),
    ],
)
def test_a_broken_folder_is_shown_with_the_reason(
    file: str, content: str, remark: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if file.endswith("l"):
        (copied / "result.json").unlink()
    (copied / file).write_text(content)
    row = look(copied)
    assert row.state == "broken"
    assert row.remark.startswith(remark)
    assert exit_code(main, [str(copied.parent)]) == 0
    assert remark in capsys.readouterr().out


def test_a_training_that_fails_is_shown_with_its_error_until_it_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*GYM, *SHORT, "ppo.learning_rate=1e38", f"outputs={tmp_path}"]
    assert exit_code(train, words) == 1
    line = capsys.readouterr().err.splitlines()[-1].removeprefix("ppo_bench: ")
    assert "learning diverged" in line
    (row,) = find_rows(tmp_path)
    assert row.run
    assert (row.state, row.remark, row.run.framework) == ("failed", line, "torch_eager")
    assert exit_code(main, [str(tmp_path)]) == 0
    assert line in capsys.readouterr().out
    with lock_run_folder(row.folder):
        assert look(row.folder).state == "running"
    assert look(row.folder).state == "stopped"


@pytest.mark.parametrize("kind", [RunInterrupted, ConfigError])
def test_a_stop_on_request_is_no_error_nor_is_a_refusal(kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(kind), lock_run_folder(tmp_path / "run"):
        raise kind("stopped after iteration 3")
    assert error_of(tmp_path / "run") is None


def test_runs_that_go_on_come_first_and_hidden_folders_hold_none(copied: Path) -> None:
    outputs = copied.parents[1]
    shutil.copytree(copied, outputs / ".sweeps" / "seed1")
    shutil.copytree(copied, copied.with_name("seed0"))
    shutil.copytree(copied, copied.with_name("seed2"))
    (copied.with_name("seed2") / "result.json").unlink()
    with lock_run_folder(copied.with_name("seed3")):  # of a run that was killed as it started
        pass
    (outputs.parent / "checkpoints").mkdir()  # not a run's
    assert find_rows(outputs.parent) == find_rows(outputs)
    assert [(row.folder.name, row.state) for row in find_rows(outputs)] == [
        ("seed2", "stopped"),
        ("seed3", "stopped"),
        ("seed0", "done"),
        ("seed1", "done"),
    ]


def test_a_folder_without_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [str(tmp_path)]) == 2
    assert_one_line(capsys.readouterr().err, "there are no runs under")
