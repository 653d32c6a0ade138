"""Evaluations during training, and numbers from `info` that are recorded with episodes."""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import subprocess
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ppo_bench
from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.runners import checkpoint
from ppo_bench.runs.callbacks import Callbacks
from ppo_bench.runs.play import play
from ppo_bench.runs.trackers.charts import Charts
from tests.processes import started, wait_until
from tests.training import rows, timeless, trained

GREEDY, SAMPLED = "evaluation_return_greedy", "evaluation_return_sampled"
SMALL = ["ppo.num_envs=2", "ppo.num_steps=64", "total_timesteps=640", "checkpoint.every_iterations=2", "device=cpu"]
EVALUATED = ["evaluation.every_iterations=2", "evaluation.episodes=3"]


def learnt(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics without times and evaluations."""
    return [{key: value for key, value in row.items() if key not in (GREEDY, SAMPLED)} for row in timeless(folder)]


def test_an_evaluation_starts_no_process_beside_the_threads_of_a_training(tmp_path: Path) -> None:
    """A process that is forked then may wait for ever for a lock that a thread held."""
    words = ["framework=torch_eager", "backend=gymnasium", "backend.vectorization=async", *EVALUATED]
    config = load_config([*SMALL, *words, f"outputs={tmp_path}"])
    callbacks = Callbacks([config])
    before = multiprocessing.active_children()
    env = callbacks.evaluation_env()
    try:
        assert multiprocessing.active_children() == before
        assert env.num_envs == 3
    finally:
        callbacks.close()


@pytest.mark.parametrize(
    "words",
    [
        ["framework=torch_eager", "backend=envpool", "ppo.norm_obs=true", "network=gru", "ppo.num_minibatches=2"],
        ["framework=jax_xla", "backend=device"],
    ],
)
def test_an_evaluation_is_what_evaluate_says_of_the_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    folder = trained(tmp_path, *SMALL, *words, *EVALUATED, "checkpoint.keep=9")
    own = rows(folder)
    assert [row["iteration"] for row in own if row[GREEDY] is not None] == [2, 4, 5]
    assert [row["iteration"] for row in own if row[SAMPLED] is not None] == [2, 4, 5]
    for iteration, column, greedy in ((2, GREEDY, "true"), (4, SAMPLED, "false")):
        saved = str(folder / f"checkpoints/iteration_{iteration:08d}")
        assert exit_code(evaluate, [saved, "episodes=3", "num_envs=3", f"greedy={greedy}", "device=cpu"]) == 0
        found = json.loads(Path(capsys.readouterr().out.splitlines()[-1]).read_text())
        assert own[iteration - 1][column] == found["return_mean"]
    result = json.loads((folder / "result.json").read_text())
    assert {column: result[column] for column in (GREEDY, SAMPLED)} == {c: own[-1][c] for c in (GREEDY, SAMPLED)}
    charts = Charts(json.loads((folder / "run.json").read_text()))
    assert charts.values(own[-1], [])["evaluation/return_greedy"] == own[-1][GREEDY]


def test_a_training_is_the_same_with_evaluations_and_without(tmp_path: Path) -> None:
    """With rnd the layers of the training have several threads, and the policy has one."""
    words = ["algorithm=rnd", "algorithm.warm_up_iterations=1"]
    with_them = trained(tmp_path / "with", *SMALL, *words, *EVALUATED)
    without = trained(tmp_path / "without", *SMALL, *words)
    assert with_them.relative_to(tmp_path / "with") == without.relative_to(tmp_path / "without")  # the same run
    assert learnt(with_them) == learnt(without)
    assert GREEDY not in rows(without)[0]
    arrays = [checkpoint.load_newest(folder / "checkpoints") for folder in (with_them, without)]
    assert arrays[0]
    assert arrays[1]
    for name, array in arrays[0].arrays.items():
        np.testing.assert_array_equal(array, arrays[1].arrays[name])


def test_a_run_that_is_resumed_without_evaluations_has_no_result_of_one(tmp_path: Path) -> None:
    def stop(run_dir: Path, row: Mapping[str, Any]) -> None:
        if row["iteration"] == 4:
            raise KeyboardInterrupt

    words = [*SMALL, "framework=torch_eager", "backend=gymnasium", f"outputs={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        ppo_bench.train([*words, *EVALUATED], on_iteration=stop)
    (folder,) = ppo_bench.train(words)
    assert isinstance(rows(folder)[1][GREEDY], float)
    assert json.loads((folder / "result.json").read_text())[GREEDY] is None


@pytest.mark.slow
def test_each_seed_of_a_program_has_its_own_evaluations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["framework=jax_xla", "backend=device", *EVALUATED]
    trained(tmp_path / "together", *SMALL, *words, "num_seeds=2")
    (together,) = (tmp_path / "together").rglob("seed2")
    alone = trained(tmp_path / "alone", *SMALL, *words, "seed=2")
    assert [row[GREEDY] for row in rows(together)] == [row[GREEDY] for row in rows(alone)]


def test_seconds_of_evaluations_are_in_no_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.2)
        yield from play(*arguments)

    monkeypatch.setattr("ppo_bench.runs.callbacks.play", slow)
    began = time.perf_counter()
    folder = trained(tmp_path, *SMALL, *EVALUATED)
    elapsed = time.perf_counter() - began
    result = json.loads((folder / "result.json").read_text())
    assert elapsed - result["wall_seconds"] > 1.2  # three evaluations by two policies, of a fifth of a second each
    times = [row["wall_seconds"] for row in rows(folder)]
    assert times == sorted(times)


@pytest.mark.slow
def test_stopped_in_an_evaluation_it_goes_on_as_if_nothing_had_been(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [*SMALL, "env.id=tests.test_evaluation:Waits-v0", "evaluation.every_iterations=3", "evaluation.episodes=1"]
    words += ["checkpoint.every_iterations=2", f"env.kwargs={{folder:{tmp_path}}}", f"outputs={tmp_path}/stopped"]
    waits = tmp_path / "waits"
    waits.touch()
    with started(*words, stdout=subprocess.PIPE) as process:
        wait_until(process, (tmp_path / "evaluating").exists)
        process.send_signal(signal.SIGINT)
        waits.unlink()
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert not (tmp_path / "played").exists()  # it stopped with the step, not with the episode
    assert "stopped after iteration 3" in said
    (folder,) = (tmp_path / "stopped").rglob("seed1")
    assert [row[GREEDY] for row in rows(folder)] == [None] * 3
    assert (folder / "checkpoints" / "iteration_00000002").exists()
    capsys.readouterr()
    assert exit_code(main, [*words, "device=cpu"]) == 0
    assert "resuming" in capsys.readouterr().err
    whole = trained(tmp_path / "whole", *words)
    assert learnt(folder) == learnt(whole)
    assert [row[GREEDY] for row in rows(folder)] == [row[GREEDY] for row in rows(whole)]


class Waits(gymnasium.Env[Any, Any]):
    """An environment of episodes of 8 steps; evaluated, it waits while a file is there."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        over = self._steps == 8
        if any(frame.filename.endswith("runs/callbacks.py") for frame in traceback.extract_stack()):
            (self._folder / ("played" if over else "evaluating")).touch()
            while (self._folder / "waits").exists():
                time.sleep(0.05)
        info = {"is_success": action == 1, "speed": float(self._steps), "name": "none"} if over else {"speed": 0.5}
        return self._obs(), float(action), over, False, info

    def _obs(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


gymnasium.register("Waits-v0", "tests.test_evaluation:Waits")


def test_numbers_of_info_are_kept_with_episodes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "env.id=tests.test_evaluation:Waits-v0",
        f"env.kwargs={{folder:{tmp_path}}}",
        "env.info=[is_success,speed]",
    ]
    folder = trained(tmp_path, *SMALL, *words)
    episodes = rows(folder, "episodes")
    assert {row["info_speed"] for row in episodes} == {8.0}  # that of the last step
    assert {row["info_is_success"] for row in episodes} == {0.0, 1.0}
    success = [row["info_is_success"] for row in episodes]
    result = json.loads((folder / "result.json").read_text())
    assert result["info"] == {"is_success": pytest.approx(np.mean(success[-100:])), "speed": 8.0}
    ended, first = [row["episodes"] for row in rows(folder)], rows(folder)[0]
    assert first["info_is_success"] == pytest.approx(np.mean(success[: ended[0]]))
    charts = Charts(json.loads((folder / "run.json").read_text()))
    assert charts.values(first, episodes)["info/is_success"] == first["info_is_success"]
    assert exit_code(evaluate, [str(folder), "episodes=4", "device=cpu"]) == 0
    told = capsys.readouterr().out
    assert "speed: 8 on average as episodes ended" in told
    assert set(json.loads(Path(told.splitlines()[-1]).read_text())["info"]) == {"is_success", "speed"}


def test_what_is_no_number_is_refused_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["env.id=tests.test_evaluation:Waits-v0", f"env.kwargs={{folder:{tmp_path}}}", "env.info=[name]"]
    assert exit_code(main, [*SMALL, *words, f"outputs={tmp_path}"]) == 1
    assert "info['name'] is not one number: leave it out of env.info" in capsys.readouterr().err


def test_names_that_no_episode_tells_are_warned_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "env.id=tests.test_evaluation:Waits-v0",
        f"env.kwargs={{folder:{tmp_path}}}",
        "env.info=[speed,sped]",
        "total_timesteps=1280",
    ]
    assert exit_code(main, [*SMALL, *words, f"outputs={tmp_path}"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "env.info" in line]
    assert len(warnings) == 1
    assert re.search(r"none of \d+ episodes has reported sped$", warnings[0])
