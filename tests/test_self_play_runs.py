"""Runs against earlier policies: they resume exactly, their checkpoints are rated, their input is checked."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from ppo_bench.commands.__main__ import main
from ppo_bench.commands.report.folders import read
from ppo_bench.commands.report.ratings import ratings
from ppo_bench.commands.watch import look
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.runners.checkpoint import load
from ppo_bench.runners.opponents import sides
from tests.processes import started, wait_until
from tests.test_self_play import PAST, SMALL
from tests.training import rows

RUN = [*PAST, "framework=torch_eager", "total_timesteps=5120", "checkpoint.every_iterations=4", "rating.games=4"]
ITERATIONS = 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("finished")
    assert exit_code(main, [*RUN, f"outputs={outputs}"]) == 0
    return folder_in(outputs)


def folder_in(outputs: Path) -> Path:
    (found,) = outputs.rglob("run.json")
    return found.parent


def test_killed_and_resumed_it_ends_bit_for_bit_the_same(finished: Path, tmp_path: Path) -> None:
    with started(*RUN, f"outputs={tmp_path}") as run:
        wait_until(run, lambda: list(tmp_path.rglob("iteration_00000008")))
    assert not list(tmp_path.rglob("result.json"))
    assert exit_code(main, [*RUN, f"outputs={tmp_path}"]) == 0
    folder = folder_in(tmp_path)
    last = [load(each / "checkpoints" / f"iteration_{ITERATIONS:08d}").arrays for each in (folder, finished)]
    assert {"opponents.actor.0.bias", "params.actor.0.bias"} <= set(last[0])
    for name, array in last[0].items():
        assert_array_equal(array, last[1][name])
    assert (folder / "episodes.jsonl").read_text() == (finished / "episodes.jsonl").read_text()
    assert (folder / "ratings.json").read_text() == (finished / "ratings.json").read_text()


def test_every_checkpoint_is_rated_and_the_best_is_the_best_rated(finished: Path) -> None:
    rated = json.loads((finished / "ratings.json").read_text())
    assert list(map(int, rated)) == [4, 8, 12, 16, 20]
    result = json.loads((finished / "result.json").read_text())
    assert result["ratings"] == rated
    assert result["rating"] == rated["20"][0]
    assert {len(numbers) for numbers in rated.values()} == {2}
    assert (finished / "checkpoints" / "best").resolve().is_dir()
    assert look(finished, held=False).rating == rated["20"][0]
    (row,) = ratings([read(finished)])
    assert (row.opponents, row.checkpoints, row.first, row.last) == ("3 of the past", 5, rated["4"][0], rated["20"][0])
    assert row.best == max(mu for mu, _ in rated.values())


class SignalAfter(Sequence[int]):
    """Signals, of which there are none until it has been asked `times` times."""

    def __init__(self, times: int) -> None:
        self._times, self.asked = times, 0

    def __len__(self) -> int:
        self.asked += 1
        return int(self.asked > self._times)

    def __getitem__(self, index: Any) -> Any:
        return [15][index]


def test_a_better_player_is_rated_higher(finished: Path, tmp_path: Path) -> None:
    """A policy that always plays one column loses to one that stands in its way; its checkpoint is rated lower."""
    from ppo_bench.runs.loop_state import LoopState
    from ppo_bench.runs.rating import Rater

    folder = tmp_path / "seed1"
    shutil.copytree(finished, folder)
    config = load_config([*RUN, "rating.games=32"])
    rater, loop = Rater(config), LoopState(iteration=16)
    assert rater.rate(folder, loop, 1, []) > 0
    loop.iteration = 20
    assert rater.rate(folder, loop, 1, [15]) == 0.0  # asked to stop: to be made later
    later = SignalAfter(5)
    rater.rate(folder, loop, 1, later)  # or asked in its fifth step
    assert later.asked < 10
    assert list(loop.ratings) == ["16"]
    rater.rate(folder, loop, 1, [])
    again = LoopState(iteration=20, ratings={"16": loop.ratings["16"]})
    assert rater.rate(folder, loop, 1, []) == 0.0  # it has one
    rater.close()
    assert list(loop.ratings) == ["16", "20"]
    assert loop.best_iteration == int(max(loop.ratings, key=lambda k: loop.ratings[k]))
    assert again.ratings != loop.ratings


def test_the_last_rating_is_made_later_if_a_signal_cuts_it_short(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ppo_bench.runs.rating import Rater

    rate = Rater.rate

    def signalled(self: Rater, folder: Path, loop: Any, seed: int, stop: Any) -> float:
        if loop.iteration == ITERATIONS and not stop:
            os.kill(os.getpid(), signal.SIGINT)
        return rate(self, folder, loop, seed, stop)

    monkeypatch.setattr(Rater, "rate", signalled)
    words = [*RUN, f"outputs={tmp_path}"]
    assert exit_code(main, words) == 130
    assert not list(tmp_path.rglob("result.json"))
    monkeypatch.undo()
    assert exit_code(main, words) == 0
    folder = folder_in(tmp_path)
    assert (folder / "ratings.json").read_text() == (finished / "ratings.json").read_text()
    assert json.loads((folder / "result.json").read_text())["rating"] is not None


def test_a_damaged_opponent_is_left_out_of_a_rating(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ppo_bench.runs.loop_state import LoopState
    from ppo_bench.runs.rating import Rater

    folder = tmp_path / "seed1"
    shutil.copytree(finished, folder, symlinks=True)
    (folder / "checkpoints" / "iteration_00000016" / "arrays.safetensors").write_bytes(b"\0" * 64)
    rater, loop = Rater(load_config(RUN)), LoopState(iteration=20, ratings={"16": [30.0, 5.0]})
    rater.rate(folder, loop, 1, [])
    rater.close()
    assert loop.ratings["16"] == [30.0, 5.0]
    assert "20" in loop.ratings
    assert "iteration_00000016 is damaged" in (said := capsys.readouterr().err)
    assert "the rating is made without it" in said


def test_a_run_with_a_pool_starts_from_one_without(tmp_path: Path) -> None:
    plain = [*SMALL, "framework=torch_eager", "total_timesteps=1024", "rating.games=0", f"outputs={tmp_path / 'plain'}"]
    assert exit_code(main, plain) == 0
    (saved,) = tmp_path.rglob("checkpoints/iteration_00000004")
    words = [*PAST, "framework=torch_eager", "total_timesteps=1280", "opponents.every_iterations=1000"]
    words += [f"checkpoint.load={saved}", "rating.games=0", f"outputs={tmp_path / 'past'}"]
    assert exit_code(main, words) == 0
    (final,) = tmp_path.rglob("checkpoints/iteration_00000005")
    pool, before = load(final).arrays, load(saved).arrays
    for place in range(3):
        assert_array_equal(pool["opponents.actor.0.weight"][place], before["params.actor.0.weight"])


def test_metrics_of_a_run_are_of_the_rows_that_learn(finished: Path) -> None:
    own, _, _ = sides(16, 2)
    assert {row["env"] for row in rows(finished, "episodes")} <= set(own.tolist())
    assert all(a["iteration"] < b["iteration"] for a, b in pairwise(rows(finished)))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["env=cartpole", "opponents=past"], "opponents.pool_size=8: cartpole is for one player, and only games have"),
        ([*SMALL, "opponents=future"], "opponents=future: there is no such choice; choose one of none, past"),
        ([*PAST, "opponents.pool_size=-1"], "opponents.pool_size=-1: must not be negative"),
        ([*PAST, "opponents.every_iterations=0"], "opponents.every_iterations=0: must be at least 1"),
        (
            ["env=atari_two_players", "algorithm=rnd"],
            "algorithm=rnd learns to predict the newest frame, and pong-v3 shows",
        ),
        ([*SMALL, "rating.games=-1"], "rating.games=-1: must not be negative"),
        ([*SMALL, "rating.opponents=0"], "rating.opponents=0: must be at least 1"),
        (
            [*PAST, "ppo.num_envs=6", "ppo.num_steps=2"],
            "ppo.num_minibatches=4 does not divide the 3 rows that do not play the past x ppo.num_steps=2",
        ),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert exit_code(main, ["framework=torch_eager", f"outputs={tmp_path}", *words]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"ppo_bench: {line}")
