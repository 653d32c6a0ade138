"""Several seeds in one program leave the folders that each would leave alone, and go on together after a kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.report.folders import read
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import RunError
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.runs import play as callbacks
from ppo_bench.runs.loop import save as save_all
from tests.training import rows, timeless

pytestmark = pytest.mark.slow

RUN = ["framework=jax_xla", "backend=device", "total_timesteps=4096"]
ITERATIONS = 8
SEEDS = (5, 6, 7)
STEPS = r"jax_xla (seeds? [\d, ]+)  step 4,096 of"
"""The last line of progress of a training, with its seeds."""
TOGETHER = [*RUN, "seed=5", "num_seeds=3", "checkpoint.every_iterations=3", "checkpoint.keep=9"]


def train(outputs: Path) -> int:
    return exit_code(main, [*TOGETHER, f"outputs={outputs}"])


def configs(outputs: Path) -> list[Config]:
    """Configurations of the seeds."""
    return load_config([*TOGETHER, f"outputs={outputs}"]).of_each_run()


def copy_without(finished: Path, outputs: Path, lost: Mapping[int, Sequence[int]]) -> None:
    """Copies of the seeds' folders as if they had not finished, without the checkpoints `lost`, iterations by seed."""
    for old, new in zip(configs(finished), configs(outputs), strict=True):
        shutil.copytree(old.run_folder, new.run_folder, symlinks=True)
        (new.run_folder / "result.json").unlink()
        for iteration in lost.get(new.root.seed, ()):
            shutil.rmtree(new.run_folder / "checkpoints" / f"iteration_{iteration:08d}")


def killed(*_: object, **__: object) -> None:
    """A training loop that is interrupted at once."""
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of three seeds at once that nothing interrupted."""
    outputs = tmp_path_factory.mktemp("together")
    assert train(outputs) == 0
    return outputs


def test_every_seed_has_the_run_folder_that_it_would_have_alone(
    finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = [*RUN, "checkpoint.every_iterations=3", f"outputs={finished}"]
    folders = [load_config([*own, f"seed={seed}"]).run_folder for seed in SEEDS]
    assert train(finished) == 0  # which only reports them
    assert capfd.readouterr().out.split() == [str(folder) for folder in folders]
    for seed, folder in zip(SEEDS, folders, strict=True):
        result = json.loads((folder / "result.json").read_text())
        assert (result["seed"], result["num_seeds"], result["iterations"]) == (seed, 3, ITERATIONS)
        recorded = json.loads((folder / "run.json").read_text())["config"]
        assert (recorded["seed"], recorded["num_seeds"]) == (seed, 1)
        rows = timeless(folder)
        assert [row["iteration"] for row in rows] == list(range(1, ITERATIONS + 1))
        assert result["episodes"] == sum(row["episodes"] for row in rows) > 10


def test_seeds_of_which_some_have_no_newest_checkpoint_go_on_together(finished: Path, tmp_path: Path) -> None:
    """A kill while iteration 6 was being saved leaves the seeds like this; the rows end the same, bit for bit."""
    copy_without(finished, tmp_path, {5: [6, 8], 6: [8], 7: [6, 8]})
    assert train(tmp_path) == 0
    for old, new in zip(configs(finished), configs(tmp_path), strict=True):
        assert timeless(old.run_folder) == timeless(new.run_folder)


def test_a_seed_that_went_back_with_the_others_and_was_killed_again_goes_on_alone(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_without(finished, tmp_path, {5: [8], 6: [6, 8], 7: [8]})
    folder = configs(tmp_path)[0].run_folder
    with monkeypatch.context() as patched:
        patched.setattr("ppo_bench.runs.train.run_iterations", killed)
        assert train(tmp_path) == 130
    assert len(timeless(folder)) == 3
    assert (folder / "checkpoints" / "best").resolve().name == "iteration_00000003"
    assert exit_code(main, [*TOGETHER, "num_seeds=1", f"outputs={tmp_path}"]) == 0
    assert len(timeless(folder)) == ITERATIONS


def test_a_seed_that_is_complete_is_not_trained_again(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(configs(finished)[1].run_folder, configs(tmp_path)[1].run_folder, symlinks=True)
    before = (configs(tmp_path)[1].run_folder / "metrics.jsonl").stat()
    assert train(tmp_path) == 0
    assert "seeds 5, 7  step" in capfd.readouterr().err
    assert (configs(tmp_path)[1].run_folder / "metrics.jsonl").stat() == before
    results = [json.loads((config.run_folder / "result.json").read_text()) for config in configs(tmp_path)]
    assert [result["num_seeds"] for result in results] == [2, 3, 2]  # as many as were trained together
    assert ["runs_at_once" in read(config.run_folder).execution for config in configs(tmp_path)] == [True] * 3


def test_an_evaluation_that_fails_is_the_failure_of_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(env: Any, agent: Any, episodes: int, seed: int, *rest: Any) -> Any:
        if seed == 6:
            raise RunError("no episode has ended")
        return callbacks.play(env, agent, episodes, seed, *rest)

    monkeypatch.setattr("ppo_bench.runs.callbacks.play", play)
    words = [*RUN, "seed=5", "num_seeds=2", "total_timesteps=1024", f"outputs={tmp_path}"]
    words += ["evaluation.every_iterations=1", "evaluation.episodes=1"]
    assert exit_code(main, words) == 1
    done, failed = load_config(words).folders
    assert (done / "result.json").exists()
    assert not (done / "error.txt").exists()
    assert "no episode has ended" in (failed / "error.txt").read_text()


def test_a_sweep_of_them_knows_what_is_done(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-m", *RUN, "num_seeds=2", f"outputs={tmp_path}"]
    assert exit_code(main, [*words, "seed=1"]) == 0
    assert exit_code(main, [*words, "seed=1,3"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "ppo_bench: 1 done, 0 failed, 1 skipped"
    assert sorted(path.parent.name for path in tmp_path.rglob("result.json")) == [f"seed{k}" for k in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("lost", "together", "had"),
    [
        ({5: [8], 6: [3, 6, 8], 7: [3, 6, 8]}, ["seed 5", "seeds 6, 7"], (6, 0, 0)),  # far apart
        ({5: [3, 8], 6: [6, 8], 7: [6, 8]}, ["seed 5", "seeds 6, 7"], (6, 3, 3)),  # no iteration in common
        ({5: [6, 8], 6: [6, 8], 7: [3, 6, 8]}, ["seeds 5, 6, 7"], (0, 0, 0)),  # one checkpoint is not far
    ],
)
def test_seeds_that_cannot_go_on_together_go_on_in_turn(
    lost: Mapping[int, Sequence[int]],
    together: list[str],
    had: Sequence[int],
    finished: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    copy_without(finished, tmp_path, lost)
    assert train(tmp_path) == 0
    assert re.findall(STEPS, capfd.readouterr().err) == together
    for old, new, kept in zip(configs(finished), configs(tmp_path), had, strict=True):
        assert [row["iteration"] for row in rows(new.run_folder)] == list(range(1, ITERATIONS + 1))
        assert rows(old.run_folder)[:kept] == rows(new.run_folder)[:kept]  # to the clock's times
        assert (new.run_folder / "result.json").exists()


def test_a_seed_that_has_failed_goes_on_last(finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy_without(finished, tmp_path, {5: [8], 6: [8], 7: [8]})
    (configs(tmp_path)[1].run_folder / "error.txt").write_text("policy_loss is nan in iteration 5: learning diverged\n")
    assert train(tmp_path) == 0
    assert re.findall(STEPS, capfd.readouterr().err) == ["seeds 5, 7", "seed 6"]


def test_a_stop_at_the_very_end_of_some_seeds_leaves_the_others_for_later(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_without(finished, tmp_path, {5: [3, 8], 6: [3, 6, 8], 7: [3, 6, 8]})

    def save(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save_all(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("ppo_bench.runs.loop.save", save)
        assert train(tmp_path) == 130
    assert "stopped with 2 of 3 runs left; the same command goes on with them" in capfd.readouterr().err
    assert [(config.run_folder / "result.json").exists() for config in configs(tmp_path)] == [True, False, False]
    assert train(tmp_path) == 0
