"""The bench: its phases add up, its arithmetic is that of the network, and wrong input is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_bench.bench.command import main
from ppo_bench.bench.limits import arithmetic
from ppo_bench.cli import exit_code
from ppo_bench.config import load_config
from tests.test_cli import assert_one_line


def test_the_arithmetic_of_cartpoles_network_is_counted() -> None:
    """By hand: two chains of 4, 64, 64 and 2 or 1 units; no gradient for the observations."""
    products = [4 * 64, 64 * 64, 64 * 2, 4 * 64, 64 * 64, 64 * 1]
    forward, without_first = 2 * sum(products), 2 * (sum(products) - 2 * 4 * 64)
    steps, learnt = 4 * 128 + 4, 4 * 4 * 128
    needed = arithmetic(load_config(["env=cartpole", "backend=gymnasium", "device=cpu"]))
    assert needed.flop == steps * forward + learnt * (2 * forward + without_first)
    assert 1e9 < needed.flop_per_second < 1e14


def test_every_program_is_measured_and_its_phases_add_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["env=cartpole", "framework=torch_eager,jax_xla", "backend=gymnasium", "rounds=2", "iterations=1"]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    assert path == tmp_path / "bench" / "cartpole-canonical.json"
    programs = json.loads(path.read_text())["programs"]
    assert [program["framework"] for program in programs] == ["torch_eager", "jax_xla"]
    for program in programs:
        assert program["seconds"]["environment"] > 0
        assert program["seconds"]["inference"] > 0
        assert program["sps_slowest"] <= program["sps"] <= program["sps_fastest"]
        assert program["sps"] == pytest.approx(512 / program["seconds"]["iteration"])
        assert 0 < program["fraction_of_serial_limit"] < 1.5
        assert program["environment_alone_sps"] > program["serial_limit_sps"]
        assert 1e8 < program["peak_memory_bytes"] < 1e10
    for suffix in (".svg", ".png"):
        assert path.with_suffix(suffix).stat().st_size > 1_000


def test_the_throughput_workload_has_more_environments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "framework=jax_xla",
        "backend=jax",
        "workload=throughput",
        "throughput_num_envs.jax=256",
        "rounds=1",
        "iterations=1",
    ]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    (program,) = json.loads(path.read_text())["programs"]
    assert program["num_envs"] == 256


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["workload=huge"], "workload=huge: choose one of canonical, throughput"),
        (["rounds=0"], "rounds=0: must be at least 1"),
        (["framework=torch_eager", "backend=jax"], "framework=torch_eager cannot step backend=jax"),
        (["env=nope"], "env=nope: there is no such choice"),
        (["round=3"], "there is no key round; did you mean rounds?"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, fragment)
    assert list(tmp_path.iterdir()) == []
