"""CUDA graphs: refused without a GPU; with one, a replay does what the plain calls do, on fresh noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ppo_bench.cli import exit_code
from ppo_bench.errors import ConfigError
from ppo_bench.runners.cuda_graphs import Replayed
from ppo_bench.runners.torch import TorchRunner
from tests.runners import problem_for
from tests.test_runners import RandomScenes, Recorder, relative_distance

NO_GPU = not torch.cuda.is_available()
on_gpu = pytest.mark.skipif(NO_GPU, reason="needs a CUDA device")


@pytest.mark.skipif(not NO_GPU, reason="there is a CUDA device")
def test_graphs_that_are_asked_for_without_a_gpu_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from ppo_bench.__main__ import main

    assert exit_code(main, ["framework=torch_compile", "framework.cudagraphs=true"]) == 2
    assert "framework.cudagraphs=true: PyTorch sees no CUDA device here" in capsys.readouterr().err


def test_graphs_that_are_asked_for_on_a_cpu_are_refused() -> None:
    problem = problem_for(RandomScenes(4, False, False), 10, [])
    with pytest.raises(ConfigError, match="needs a GPU, not device=cpu"):
        TorchRunner(problem, None, cuda_graphs=True)


@on_gpu
def test_warming_up_and_recording_leave_what_the_function_writes_to_as_it_was() -> None:
    total = torch.zeros(3, device="cuda")
    one = torch.ones(3, device="cuda")

    def add(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total += x
        return total * 2.0

    replayed = Replayed(add, changed=lambda total: [total])
    for calls, factor in enumerate((1.0, 10.0, 100.0), 1):
        doubled = replayed((total,), one * factor)
        assert total.tolist() == [float(int("1" * calls))] * 3
        assert doubled.tolist() == [2.0 * float(int("1" * calls))] * 3


@on_gpu
@pytest.mark.parametrize(("pixels", "continuous"), [(False, False), (False, True), (True, False)])
def test_replays_act_on_fresh_noise_and_learn_what_plain_calls_learn(pixels: bool, continuous: bool) -> None:
    taken, learnt = [], []
    for cuda_graphs in (False, True):
        record = Recorder(RandomScenes(4, pixels, continuous))
        problem = dataclasses.replace(problem_for(record, 10, ["ppo.num_steps=32"]), device="cuda")
        runner = TorchRunner(problem, None, cuda_graphs=cuda_graphs)
        state = runner.init(1)
        for _ in range(3):
            state, _, _ = runner.step(state)
        taken.append(np.stack(record.actions))
        learnt.append(np.concatenate([a.ravel() for n, a in runner.export(state).items() if n.startswith("params.")]))
    np.testing.assert_allclose(taken[1], taken[0], rtol=0, atol=1e-4 if continuous else 0)
    assert relative_distance(learnt[1], learnt[0]) < 2e-3
    iterations = taken[1].reshape(3, 32, -1)
    assert not np.array_equal(iterations[0], iterations[1])
    assert not np.array_equal(iterations[1], iterations[2])
