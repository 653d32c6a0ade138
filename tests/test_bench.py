"""The bench: its phases are where the time goes, wrong input is one line."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator
from multiprocessing import active_children
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from ppo_bench.commands.bench.__main__ import main
from ppo_bench.commands.bench.config import load
from ppo_bench.commands.bench.phases import phases
from ppo_bench.commands.bench.worker import Program
from ppo_bench.commands.programs import programs
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError, RankLostError, RunError
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.common.workers import RankWorkers
from ppo_bench.runners.frameworks import Jax
from tests.refusals import assert_one_line
from tests.wrappers import STEP_SECONDS

pytestmark = pytest.mark.slow


def test_time_that_environments_take_is_found_in_their_phase() -> None:
    """16 steps of two environments in turn, each of at least 5 ms, by clocks that may differ by a hundredth.

    The learning phase is a difference of two iterations, so that a busy machine can make it negative.
    """
    slow = "env.wrappers=[{_target_:tests.wrappers.Slow}]"
    config = load(["framework=torch_eager", "backend=gymnasium", "ppo.num_envs=2", "ppo.num_steps=16", slow])
    with Program(phases, config) as program:
        turn = program.turn()
    least = 0.99 * 16 * 2 * STEP_SECONDS
    assert least < turn.environment < turn.iteration
    assert turn.acting > 0
    parts = turn.environment + turn.acting + turn.learning + turn.rest
    assert parts == pytest.approx(turn.iteration)


def test_environments_are_stepped_by_those_who_can_and_the_others_are_left_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list(programs(load, ["env=minatar_breakout"])) == ["jax_xla"]
    assert "left out: framework=torch_eager cannot step minatar-breakout of backend=device" in capfd.readouterr().err


@pytest.mark.parametrize("chosen", [["backend=gymnasium"], []])
def test_a_framework_that_is_missing_is_left_out(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ConfigError("framework=jax_xla needs jax")

    monkeypatch.setattr(Jax, "require", missing)
    assert list(programs(load, ["env=cartpole", *chosen])) == ["torch_eager", "torch_compile"]
    with pytest.raises(ConfigError, match="needs jax"):
        programs(load, ["env=cartpole", "framework=torch_eager,jax_xla", *chosen])


def start_nothing() -> Generator[None, None, None]:
    yield


def test_an_interruption_while_a_process_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SpawnProcess.start

    def interrupted(process: SpawnProcess) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)  # to this thread: another would have it later on a busy machine

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    # A shell has the processes that it starts in the background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            RankWorkers("a program", 2, start_nothing)
    finally:
        signal.signal(signal.SIGINT, before)
    assert active_children() == []


def fail_on_the_second_rank() -> Generator[None, None, None]:
    rank_info = read_rank_info()
    assert rank_info
    if rank_info.rank == 0:
        raise RankLostError("another process has ended")
    yield
    raise RunError("environment 3 returned a non-finite reward: nan")


def test_the_reason_of_a_rank_is_raised_before_its_loss() -> None:
    with RankWorkers("a program", 2, fail_on_the_second_rank) as workers:
        workers.send(None)
        with pytest.raises(RunError, match="non-finite reward"):
            workers.receive()


def test_programs_of_the_same_framework_are_told_apart_by_what_differs() -> None:
    words = ["env=cartpole", "precision=float32,float64", "framework=jax_xla"]
    assert list(programs(load, words)) == ["jax_xla precision=float32", "jax_xla precision=float64"]
    assert list(programs(load, [*words, "precision=float32"])) == ["jax_xla"]


def test_every_program_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["env=cartpole", "framework=torch_eager,jax_xla", "backend=gymnasium", "rounds=2", "iterations=1"]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    assert path == tmp_path / "bench" / "cartpole.json"
    programs = json.loads(path.read_text())["programs"]
    assert [program["framework"] for program in programs] == ["torch_eager", "jax_xla"]
    for program in programs:
        assert program["seconds"]["environment"] > 0
        assert program["seconds"]["acting"] > 0
        assert program["sps_slowest"] <= program["sps"] <= program["sps_fastest"]
        assert program["sps"] == pytest.approx(512 / program["seconds"]["iteration"])
        assert 1e8 < program["peak_memory_bytes"] < 1e10


def test_one_and_two_devices_are_measured_beside_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["framework=torch_eager", "backend=gymnasium", "devices=1,2", "ppo.shards=2", "device=cpu", "rounds=1"]
    assert exit_code(main, [*words, "ppo.num_steps=16", "iterations=1", f"outputs={tmp_path}"]) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    one, two = json.loads(path.read_text())["programs"]
    assert two["overrides"] == "devices=2"
    assert two["seconds"]["rest"] == two["seconds"]["iteration"]  # which is not divided
    assert one["seconds"]["environment"] > 0


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["rounds=0"], "rounds=0: must be at least 1"),
        (["framework=torch_eager", "env=minatar_breakout"], "framework=torch_eager cannot step minatar-breakout of"),
        (["ppo.target_kl=0.01"], "ppo.target_kl=0.01: a bench measures all epochs; use ppo.target_kl=null"),
        (["num_seeds=2"], "num_seeds=2 has no meaning here: compare one seed after the other"),
        (["tracker=tensorboard"], "tracker has no meaning here: a comparison leaves no run"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, fragment)
    assert list(tmp_path.iterdir()) == []
