"""The ladder of `bench ablation=true`: each step enables the optimisation that it names, and the shares add up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands.bench.ablation import JAX, TORCH, circumstances, climbs, shares, steps
from ppo_bench.commands.bench.command import main
from ppo_bench.commands.bench.programs import load
from ppo_bench.common.cli import exit_code
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import Auto
from ppo_bench.tuning.switches import Tuning
from tests.refusals import assert_one_line

pytestmark = pytest.mark.slow


def network(observations: spaces.Box) -> NetworkSpec:
    return Auto([64, 64], "tanh").build(observations, spaces.Discrete(3))


VECTORS = network(spaces.Box(-1, 1, (4,), np.float32))
PLAIN = {"avx512_f": True, "avx512_bf16": False}
FRAMES = network(spaces.Box(0, 255, (4, 84, 84), np.uint8))


def test_each_step_has_those_below_it() -> None:
    climbed = steps(TORCH, circumstances(FRAMES, "envpool", None, None, PLAIN), None)
    assert [step.title for step in climbed] == [
        "PyTorch, operation by operation",
        "freed memory is kept",
        "idle threads sleep",
        "EnvPool's thread follows its caller",
        "torch.compile",
    ]
    assert climbed[0].words == ["framework=torch_eager", "tuning=off"]
    assert climbed[1].words == ["framework=torch_eager", "tuning=off", "tuning.keep_freed_memory=true"]
    assert climbed[-1].words[0] == "framework=torch_compile"
    assert load([*climbed[-1].words, "backend=envpool"]).tuning == Tuning(convolve_by_products=False)  # which is JAX's


def test_what_does_not_apply_is_left_out() -> None:
    on_gymnasium = steps(TORCH, circumstances(FRAMES, "gymnasium", None, None, PLAIN), None)
    assert "EnvPool's thread follows its caller" not in [step.title for step in on_gymnasium]
    of_frames = steps(JAX, circumstances(FRAMES, "envpool", None, "envpool_xla", PLAIN), "envpool_xla")
    assert [step.title for step in of_frames][1:3] == [
        "EnvPool's thread follows its caller",
        "convolutions as matrix products",
    ]
    on_cpu = steps(JAX, circumstances(VECTORS, "gymnasium", None, "jax", PLAIN), "jax")
    assert [step.words for step in on_cpu] == [
        ["framework=jax_xla", "tuning=off"],
        ["framework=jax_xla", "tuning=off", "backend=jax"],
        ["framework=jax_xla", "tuning=off", "backend=jax", "framework.iterations_per_call=10"],
    ]
    on_gpu = steps(TORCH, circumstances(VECTORS, "gymnasium", (9, 0), None, PLAIN), None)
    titles = ["PyTorch, operation by operation", "torch.compile", "CUDA graphs", "TF32", "bfloat16"]
    assert [step.title for step in on_gpu] == titles
    assert on_gpu[-1].words[2:] == ["framework.cudagraphs=true", "precision=bfloat16"]
    on_older = steps(TORCH, circumstances(VECTORS, "gymnasium", (7, 5), None, PLAIN), None)
    assert [step.title for step in on_older] == [title for title in titles if title != "TF32"]


@pytest.mark.parametrize(
    ("network", "instructions", "there"),
    [
        (FRAMES, {"avx512_bf16": True}, True),
        (FRAMES, {"amx_bf16": True, "avx512_bf16": False}, True),
        (FRAMES, PLAIN, False),
        (VECTORS, {"avx512_bf16": True}, False),
    ],
)
def test_bfloat16_is_a_step_where_the_cpu_multiplies_it(
    network: NetworkSpec, instructions: dict[str, bool], there: bool
) -> None:
    """A step of PyTorch alone: XLA has no such convolutions on a CPU."""
    conditions = circumstances(network, "envpool", None, "envpool_xla", instructions)
    assert (steps(TORCH, conditions, None)[-1].title == "bfloat16") == there
    assert "bfloat16" not in [step.title for step in steps(JAX, conditions, "envpool_xla")]


def test_shares_are_parts_of_the_logarithm_of_the_whole() -> None:
    """2 times and then 4 times as fast: a third and two thirds; a round that is slow as a whole changes nothing."""
    rows = shares(np.array([[8.0, 80.0, 8.0], [4.0, 40.0, 4.0], [1.0, 10.0, 1.0]]))
    assert [row["times_previous"] for row in rows] == [None, 2.0, 4.0]
    assert [row["times_first"] for row in rows] == [1.0, 2.0, 8.0]
    assert rows[1]["share"] == pytest.approx(1 / 3)
    assert rows[2]["share"] == pytest.approx(2 / 3)
    assert (rows[1]["low"], rows[1]["high"]) == (2.0, 2.0)


def test_the_interval_covers_what_the_rounds_show() -> None:
    rows = shares(np.array([[2.0, 3.0, 2.5, 2.2, 2.8], [1.0, 1.0, 1.0, 1.0, 1.0]]))
    assert rows[1]["times_previous"] == 2.5
    assert 2.0 <= rows[1]["low"] < 2.5 < rows[1]["high"] <= 3.0


def test_the_ladder_of_cartpole_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["ablation=true", "framework=jax_xla", "rounds=2", "iterations=1", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    assert path == tmp_path / "bench" / "cartpole-canonical-ablation.json"
    ladders = json.loads(path.read_text())["ladders"]
    assert list(ladders) == ["JAX, gymnasium"]
    rows = ladders["JAX, gymnasium"]
    titles = [row["title"] for row in rows]
    assert titles[0] == "JAX, environments on the host"
    assert titles[-2:] == ["environments in the program", "ten iterations at once"]
    assert rows[0]["words"] == ["framework=jax_xla", "tuning=off"]
    for row in rows:
        assert len(row["iteration_seconds"]) == 2
        assert row["sps"] == pytest.approx(512 / np.median(row["iteration_seconds"]))
    assert math.prod(row["times_previous"] for row in rows[1:]) > 1.5  # a program against its host
    for suffix in (".svg", ".png"):
        assert path.with_suffix(suffix).stat().st_size > 1_000


def test_the_rungs_that_an_unknown_environment_has_are_those_of_its_host() -> None:
    words = ["env.id=LunarLander-v3", "backend=envpool", "framework=jax_xla"]
    ((title, climb),) = climbs(words, load(words))
    assert title == "JAX, envpool"
    assert climb.steps[-1].title == "EnvPool's thread follows its caller"


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["ablation=true", "trace=true"], "ablation=true trace=true: one at a time"),
        (["ablation=true", "backend=jax"], "a ladder begins with environments on the host"),
        (["ablation=true", "precision=float32,float64"], "only lists of framework, backend and workload"),
        (["num_seeds=2"], "num_seeds=2: a bench measures one training; leave it out"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, fragment)


def test_a_machine_on_which_no_ladder_can_be_measured_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["ablation=true", "device=cpu", "devices=64", "ppo.shards=64", "ppo.num_envs=64", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 2
    *left_out, last = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in left_out] == ["left out", "left out"]
    assert last == "ppo_bench: no ladder of PyTorch or JAX can be measured: what was left out stands above"
