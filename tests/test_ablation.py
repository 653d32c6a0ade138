"""The ladder: its optimisations undone change no result, its steps are what they say, its shares add up."""

from __future__ import annotations

import gzip
import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands.bench.ablation import JAX, TORCH, circumstances, climbs, shares, steps
from ppo_bench.commands.bench.command import main
from ppo_bench.commands.bench.handicaps import HANDICAPS, _Changed
from ppo_bench.commands.bench.programs import load
from ppo_bench.commands.bench.scaling import points
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import Auto
from ppo_bench.networks.torch import linear
from ppo_bench.runs.train import build_runner
from tests.test_cli import assert_one_line
from tests.test_torch_linear import Operations

REPLACED = {
    "give_memory_back": ("torch_eager", "runners.torch", "keep_freed_memory"),
    "store_floats": ("torch_eager", "runners.torch", "allocate"),
    "convolve_channels_first": ("torch_eager", "networks.torch", "F"),
    "shuffle_on_host": ("torch_eager", "runners.torch", "noise"),
    "adam_by_operations": ("torch_eager", "runners.torch", "Adam"),
    "copy_buffers": ("jax_xla", "runners.jax", "jax"),
    "convolve_by_library": ("jax_xla", "networks.jax", "convolve"),
    "unroll_update": ("jax_xla", "runners.jax_learning", "jax"),
}
"""The framework that each handicap is for, and what it replaces in which module.

Pages are in test_memory.py; large products are MKL's in float64 anyway and have a test of their own.
"""
PONG = ["env=pong", "backend=envpool", "device=cpu", "ppo.num_envs=2", "ppo.num_steps=8"]


def trained(framework: str, precision: str = "float64") -> Arrays:
    """What two iterations of Pong, each of 2 epochs of 2 minibatches, make of the parameters."""
    words = [*PONG, f"framework={framework}", f"precision={precision}", "total_timesteps=32"]
    runner = build_runner(load_config([*words, "ppo.update_epochs=2", "ppo.num_minibatches=2"]))
    state = runner.init(1)
    for _ in range(2):
        state, _, _ = runner.step(state)
    arrays = runner.export(state)
    runner.close()
    return {name: array for name, array in arrays.items() if name.startswith(("params.", "adam."))}


@pytest.fixture(scope="module")
def unhandicapped() -> dict[str, Arrays]:
    return {framework: trained(framework) for framework in ("torch_eager", "jax_xla")}


def watch(holder: Any, name: str, calls: list[str]) -> None:
    """Note every call of what a handicap has put in place of `name`: of a module, those of the members it changed."""
    replaced = getattr(holder, name)
    if isinstance(replaced, _Changed):
        for member in vars(replaced).keys() - {"_module"}:
            watch(replaced, member, calls)
        return

    def noted(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return replaced(*arguments, **options)

    setattr(holder, name, noted)


@pytest.mark.parametrize("handicap", sorted(HANDICAPS.keys() - {"take_small_pages", "multiply_by_mkl"}))
def test_a_handicap_changes_no_result(
    handicap: str, unhandicapped: dict[str, Arrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, place, name = REPLACED[handicap]
    module = import_module(f"ppo_bench.{place}")
    before = getattr(module, name)
    monkeypatch.setattr(module, name, before)  # which is put back at the end
    HANDICAPS[handicap]()
    assert getattr(module, name) is not before
    calls: list[str] = []
    watch(module, name, calls)
    found, expected = trained(framework), unhandicapped[framework]
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-7, atol=1e-9, err_msg=key)
    assert calls  # what was replaced is what the training uses


def test_an_update_is_laid_out_whole_and_its_advantages_stay_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    learning: Any = import_module("ppo_bench.runners.jax_learning")
    monkeypatch.setattr(learning, "jax", learning.jax)  # which is put back at the end
    loops, own = set(), jax.lax.scan

    def scan(*arguments: Any, **options: Any) -> Any:
        loops.add((options.get("reverse", False), options.get("unroll", 1)))
        return own(*arguments, **options)

    monkeypatch.setattr(jax.lax, "scan", scan)
    trained("jax_xla")
    assert loops == {(False, 1), (True, 1)}
    loops.clear()
    HANDICAPS["unroll_update"]()
    trained("jax_xla")
    assert loops == {(False, True), (True, 1)}


def test_products_by_mkl_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    product = "ppo_bench.product.default"
    monkeypatch.setattr("ppo_bench.networks.torch.linear", linear)  # which is put back at the end
    with Operations() as executed:
        expected = trained("torch_eager", "float32")
    assert product in executed.names
    HANDICAPS["multiply_by_mkl"]()
    with Operations() as executed:
        found = trained("torch_eager", "float32")
    assert product not in executed.names
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-6, err_msg=key)


def network(observations: spaces.Box) -> NetworkSpec:
    return Auto([64, 64], "tanh").build(observations, spaces.Discrete(3))


VECTORS = network(spaces.Box(-1, 1, (4,), np.float32))
FRAMES = network(spaces.Box(0, 255, (4, 84, 84), np.uint8))


def test_each_step_lacks_what_comes_above_it() -> None:
    climbed = steps(TORCH, circumstances(FRAMES, None, {"large products"}, None), None)
    assert [step.title for step in climbed] == [
        "PyTorch, operation by operation",
        "freed memory is kept",
        "memory in huge pages",
        "idle threads end before a step",
        "frames stay bytes",
        "convolutions channels last",
        "large products by oneDNN",
        "minibatches drawn on the device",
        "Adam in one kernel",
        "torch.compile",
    ]
    cures = ["give_memory_back", "take_small_pages", "leave_threads_spinning", "store_floats"]
    cures += ["convolve_channels_first", "multiply_by_mkl", "shuffle_on_host", "adam_by_operations"]
    assert [step.handicaps for step in climbed] == [*(tuple(cures[k:]) for k in range(9)), ()]
    assert climbed[0].words == ["framework=torch_eager"]
    assert climbed[-1].words == ["framework=torch_compile", "framework.cudagraphs=false"]


def test_what_does_not_apply_is_left_out() -> None:
    on_gymnasium = steps(TORCH, circumstances(FRAMES, None, set(), None), None)
    assert not any({"leave_threads_spinning", "multiply_by_mkl"} & {*step.handicaps} for step in on_gymnasium)
    on_cpu = steps(JAX, circumstances(VECTORS, None, set(), "jax"), "jax")
    assert [step.handicaps for step in on_cpu] == [
        ("copy_buffers", "unroll_update"),
        ("unroll_update",),
        (),
        (),
        (),
    ]
    assert on_cpu[-1].words == ["framework=jax_xla", "backend=jax", "framework.iterations_per_call=10"]
    on_gpu = steps(TORCH, circumstances(VECTORS, (9, 0), set(), None), None)
    assert [step.title for step in on_gpu][-4:] == ["torch.compile", "CUDA graphs", "TF32", "bfloat16"]
    assert on_gpu[-1].words == ["framework=torch_compile", "framework.cudagraphs=true", "precision=bfloat16"]
    on_older = steps(TORCH, circumstances(VECTORS, (7, 5), set(), None), None)
    assert [step.title for step in on_older][-3:] == ["torch.compile", "CUDA graphs", "bfloat16"]


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
    assert rows[0]["without"] == ["copy_buffers", "unroll_update"]
    for row in rows:
        assert len(row["iteration_seconds"]) == 2
        assert row["sps"] == pytest.approx(512 / np.median(row["iteration_seconds"]))
    assert math.prod(row["times_previous"] for row in rows[1:]) > 1.5  # a program against its host
    for suffix in (".svg", ".png"):
        assert path.with_suffix(suffix).stat().st_size > 1_000


def test_cost_is_measured_along_every_scale(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scales = "{num_envs:[4,64],num_steps:[32],hidden_size:[8],num_seeds:[1,2]}"
    words = ["scaling=true", "framework=jax_xla", "backend=jax", f"scales={scales}", "rounds=1", "iterations=2"]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    found_points = json.loads(path.read_text())["points"]
    found = [(point["axis"], point["value"]) for point in found_points]
    assert found == [("num_envs", 4), ("num_envs", 64), ("num_steps", 32), ("hidden_size", 8), *[("num_seeds", k) for k in (1, 2)]]  # fmt: skip  # noqa: E501
    batches = [4 * 128, 64 * 128, 4 * 32, 4 * 128, 4 * 128, 2 * 4 * 128]
    for point, batch in zip(found_points, batches, strict=True):
        assert 1 < sum(point["iteration_seconds"]) < 25
        assert point["sps"] == pytest.approx(batch / np.median(point["iteration_seconds"]))
        assert 1e8 < point["peak_memory_bytes"] < 1e10
    for suffix in (".svg", ".png"):
        assert path.with_suffix(suffix).stat().st_size > 1_000


def test_a_point_that_is_too_much_for_the_machine_costs_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deadly = "env.wrappers=[{_target_:tests.wrappers.NoMoreThanTwo}]"
    words = ["scaling=true", "framework=torch_eager", "backend=gymnasium", "scales={num_envs:[1,2]}", "iterations=1"]
    words = [*words, "~scales.num_steps", "~scales.hidden_size", "~scales.num_seeds", deadly, f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    printed = capfd.readouterr()
    assert (
        "num_envs=2 torch_eager on gymnasium: the process of torch_eager on gymnasium was killed by SIGKILL"
        in printed.err
    )
    path = Path(printed.out.splitlines()[-1])
    one, two = json.loads(path.read_text())["points"]
    assert one["sps"] > 0
    assert two["sps"] is None


def test_layers_that_a_network_does_not_have_are_not_widened() -> None:
    frames = ["env=pong", "backend=envpool", "framework=torch_eager"]
    axes = {words[0]: {axis for axis, _, _ in points(words, load(words))} for words in (frames, ["env=acrobot"])}
    assert axes == {"env=pong": {"num_envs", "num_steps"}, "env=acrobot": {"num_envs", "num_steps", "hidden_size"}}


def test_the_rungs_that_an_unknown_environment_has_are_those_of_its_host() -> None:
    words = ["env.id=LunarLander-v3", "backend=envpool", "framework=jax_xla"]
    ((title, climb),) = climbs(words, load(words))
    assert title == "JAX, envpool"
    assert climb.steps[-1].title == "the update is a loop"


@pytest.mark.parametrize(("framework", "known"), [("torch_eager", "aten::addmm"), ("jax_xla", "PjitFunction")])
def test_a_trace_holds_what_an_iteration_did(
    framework: str, known: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["trace=true", f"framework={framework}", "backend=gymnasium", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    path = Path(capfd.readouterr().out.splitlines()[-1])
    assert path.name == f"cartpole-canonical-gymnasium-{framework}.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(known in event.get("name", "") for event in events) >= 128


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["ablation=true", "scaling=true"], "ablation=true scaling=true: one at a time"),
        (["ablation=true", "backend=jax"], "a ladder begins with environments on the host"),
        (["ablation=true", "precision=float32,float64"], "only lists of framework, backend and workload"),
        (["scaling=true", "scales={num_env:[1]}"], "scales has no such key; it has scales.num_envs, "),
        (["scaling=true", "scales={num_envs:[0]}", "framework=torch_eager", "backend=gymnasium"], "ppo.num_envs=0"),
        (["num_seeds=2"], "num_seeds=2: of the bench, scaling=true alone"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, fragment)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_large_products_are_a_step_where_they_are_oneDNNs(precision: str) -> None:
    words = ["env=breakout", "backend=envpool", "framework=torch_eager", "device=cpu", f"precision={precision}"]
    ((_, climb),) = climbs(words, load(words))
    assert ("large products by oneDNN" in [step.title for step in climb.steps]) == (precision == "float32")
