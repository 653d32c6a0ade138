"""CUDA graphs: refused without a GPU; with one, a replay computes the same as plain calls, with fresh noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.runners.cuda_graphs import WARM_UP_CALLS, GraphedCallable
from ppo_bench.runners.env_groups import host_runner
from ppo_bench.runners.host import HostRunner
from ppo_bench.runners.torch import CudaGraphs, TorchLearner
from tests.runners import problem_for, relative_distance
from tests.scenes import RandomScenes, Recorder
from tests.seams import LEVELLED
from tests.transcribed_transformer import TRXL
from tests.without_data import record

NO_GPU = not torch.cuda.is_available()
on_gpu = pytest.mark.skipif(NO_GPU, reason="needs a CUDA device")


@pytest.mark.skipif(not NO_GPU, reason="there is a CUDA device")
def test_graphs_that_are_asked_for_without_a_gpu_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from ppo_bench.__main__ import main

    assert exit_code(main, ["framework=torch_compile", "framework.cudagraphs=true"]) == 2
    assert "framework.cudagraphs=true needs a GPU, not device=cpu" in capsys.readouterr().err


def test_a_recorded_update_cannot_stop_early() -> None:
    spec = problem_for(RandomScenes(4, False, False), 10, ["ppo.target_kl=0.1"])
    with pytest.raises(ConfigError, match=r"ppo\.target_kl=null"):
        TorchLearner(spec, None, cuda_graphs="update")


@on_gpu
def test_warming_up_and_recording_leave_what_the_function_writes_to_as_it_was() -> None:
    total = torch.zeros(3, device="cuda")
    one = torch.ones(3, device="cuda")

    def add(fixed: tuple[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        (total,) = fixed
        total += x
        return total * 2.0

    replayed = GraphedCallable(add, changed=lambda total: [total])
    for calls, factor in enumerate((1.0, 10.0, 100.0), 1):
        doubled = replayed((total,), one * factor)
        assert total.tolist() == [float(int("1" * calls))] * 3
        assert doubled.tolist() == [2.0 * float(int("1" * calls))] * 3


def runner_on_gpu(framework: str, cuda_graphs: CudaGraphs, env: Recorder, *overrides: str) -> HostRunner:
    """Compiled (`torch_compile`) or not, recorded or not."""
    spec = dataclasses.replace(problem_for(env, 10, ["ppo.num_steps=32", *overrides]), device="cuda")
    if framework == "torch_eager":
        return host_runner(spec, TorchLearner(spec, None, cuda_graphs=cuda_graphs))
    option = f"framework.cudagraphs={str(cuda_graphs).lower()}"
    runner = load_config([f"framework={framework}", option, "backend=gymnasium"]).framework.runner(spec)
    assert isinstance(runner, HostRunner)
    return runner


@on_gpu
@pytest.mark.parametrize("framework", ["torch_eager", "torch_compile"])
@pytest.mark.parametrize(
    ("pixels", "continuous", "overrides"),
    [
        (False, False, []),
        (False, True, []),
        (True, False, []),
        (False, False, ["ppo.target_kl=1e-12"]),
        (False, False, ["precision=float64"]),
    ],
)
def test_replays_act_on_fresh_noise_and_learn_what_plain_calls_learn(
    framework: str, pixels: bool, continuous: bool, overrides: list[str]
) -> None:
    """Also after a restart of the environments, and in a restored state, which is recorded anew."""
    taken, learnt = [], []
    values: list[CudaGraphs] = [False, True] if "ppo.target_kl=1e-12" in overrides else [False, True, "update"]
    for cuda_graphs in values:
        env = Recorder(RandomScenes(4, pixels, continuous))
        runner = runner_on_gpu(framework, cuda_graphs, env, *overrides)
        state = runner.init(1)
        for _ in range(2):
            state, _, _ = runner.iterate(state)
        state, _, _ = runner.iterate(runner.restart_envs(state))
        state, _, _ = runner.iterate(runner.restore(runner.export(state)))
        taken.append(np.stack(env.actions))
        learnt.append(np.concatenate([a.ravel() for n, a in runner.export(state).items() if n.startswith("params.")]))
    for actions, params in zip(taken[1:], learnt[1:], strict=True):
        np.testing.assert_allclose(actions, taken[0], rtol=0, atol=1e-4 if continuous else 0)
        assert relative_distance(params, learnt[0]) < (1e-8 if "precision=float64" in overrides else 2e-3)
    iterations = taken[1].reshape(4, 32, -1)
    assert len({iteration.tobytes() for iteration in iterations}) == 4


@on_gpu
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarser_arithmetic_replays_too(precision: str) -> None:
    runner = runner_on_gpu("torch_compile", True, Recorder(RandomScenes(4, True, False)), f"precision={precision}")
    _, metrics, _ = runner.iterate(runner.init(1))
    assert np.isfinite(metrics["gradient_norm"])


# --- Without a GPU ----------------------------------------------------------------------------------------------------


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _overwrite(leaf: Any, value: Any) -> Any:
    return leaf.copy_(value) if isinstance(leaf, torch.Tensor) else leaf


class Rehearsed:
    """`GraphedCallable` without a graph: inputs and outputs keep their addresses; a recording runs it thrice."""

    def __init__(self, function: Any, changed: Any = lambda *_: ()) -> None:
        self.function, self.changed = function, changed
        self.recordings = 0
        self.fixed: tuple[Any, ...] | None = None

    def __call__(self, fixed: Any, *inputs: torch.Tensor) -> Any:
        if self.fixed is None or any(a is not b for a, b in zip(fixed, self.fixed, strict=True)):
            self.recordings += 1
            self.fixed, self.inputs = tuple(fixed), [x.clone() for x in inputs]
            before = [x.clone() for x in self.changed(*fixed)]
            for _ in range(WARM_UP_CALLS):
                self.outputs = tree_map(_copy, self.function(fixed, *self.inputs))
            for tensor, value in zip(self.changed(*fixed), before, strict=True):
                tensor.copy_(value)
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given)
        tree_map(_overwrite, self.outputs, self.function(fixed, *self.inputs))
        return self.outputs


@pytest.mark.parametrize("whole_update", [False, True])
@pytest.mark.parametrize("network", [[], ["network=lstm"], ["network=trxl", *TRXL]], ids=["mlp", "lstm", "trxl"])
def test_what_a_recording_does_to_inputs_and_outputs_changes_nothing_that_is_learnt(
    network: list[str], whole_update: bool
) -> None:
    """Neither is a function recorded twice for a state, nor is an output used after the next call."""
    ends = []
    for rehearsed in (False, True):
        overrides = ["ppo.num_steps=8", *network, *LEVELLED, "ppo.num_minibatches=2"]
        runner: Any = load_config(["framework=torch_eager"]).framework.runner(
            problem_for(RandomScenes(4, False, False), 10, overrides)
        )
        learner = runner._learner
        if rehearsed:
            recorded = record(learner, Rehearsed, whole_update)
        state = runner.init(1)
        for _ in range(3):
            state, _, _ = runner.iterate(state)
        if rehearsed:
            assert {function.recordings for function in recorded.values()} == {1}
        state, _, _ = runner.iterate(runner.restart_envs(state))
        state, _, _ = runner.iterate(runner.restore(runner.export(state), restore_envs=True))
        ends.append(runner.export(state))
    for name, array in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], array, err_msg=name)
