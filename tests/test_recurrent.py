"""Recurrent networks: cells equal PyTorch's, gradients equal finite differences, updates start from the rollout's
memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.torch.recurrence import run_recurrence

STEPS, ROWS, INPUTS, UNITS = 7, 3, 5, 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def theirs(cell: str) -> torch.nn.LSTM | torch.nn.GRU:
    torch.manual_seed(1)
    return (torch.nn.LSTM if cell == "lstm" else torch.nn.GRU)(INPUTS, UNITS).double()


@pytest.mark.parametrize("cell", CELLS)
def test_a_sequence_and_its_gradients_are_those_of_pytorchs_own(cell: str) -> None:
    module, x = theirs(cell), drawn(STEPS, ROWS, INPUTS).requires_grad_()
    state = drawn(len(CELLS[cell].states), ROWS, UNITS, seed=2).requires_grad_()
    weights: Any = (module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0)
    parts: Any = tuple(part[None] for part in state)
    expected, _ = module(x, parts if cell == "lstm" else parts[0])
    projected = torch.nn.functional.linear(x, weights[0], weights[2])
    found = run_recurrence(cell, projected, torch.zeros(STEPS, ROWS), state, weights[1], weights[3])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    along = drawn(STEPS, ROWS, UNITS, seed=3)
    mine, others = (torch.autograd.grad((y * along).sum(), (*weights, x, state)) for y in (found, expected))
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_those_of_differences_where_episodes_begin_anew(cell: str) -> None:
    gates, states = CELLS[cell].gates * UNITS, len(CELLS[cell].states)
    start = (drawn(STEPS, ROWS, seed=4) > 0.5).double()
    assert 0 < start.sum() < start.numel()
    inputs = (drawn(STEPS, ROWS, gates), drawn(states, ROWS, UNITS), drawn(gates, UNITS), drawn(gates))
    assert torch.autograd.gradcheck(
        lambda projected, state, weight, bias: run_recurrence(cell, projected, start, state, weight, bias),
        [x.requires_grad_() for x in inputs],
    )


def test_a_reset_by_hand() -> None:
    """One unit, weights of 1: h = o tanh(c), c = f c + i g, all gates of x + h; a reset forgets h and c."""

    def gate(x: float) -> float:
        return 1 / (1 + np.exp(-x))

    projected, start = torch.tensor([0.3, -0.2], dtype=torch.float64), torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    state = torch.tensor([[[0.5]], [[2.0]]], dtype=torch.float64)
    found = run_recurrence(
        "lstm",
        projected[:, None, None].repeat(1, 1, 4),
        start,
        state,
        torch.ones(4, 1).double(),
        torch.zeros(4).double(),
    )
    cell = gate(0.8) * 2.0 + gate(0.8) * np.tanh(0.8)
    assert abs(float(found[0, 0, 0]) - gate(0.8) * np.tanh(cell)) < 1e-15
    cell = gate(-0.2) * np.tanh(-0.2)  # as if there had been nothing
    assert abs(float(found[1, 0, 0]) - gate(-0.2) * np.tanh(cell)) < 1e-15


@pytest.mark.parametrize(
    "backend", ["gymnasium", "envpool", pytest.param("envpool_xla", marks=pytest.mark.slow), "device"]
)
def test_components_are_selected_on_every_backend(backend: str, tmp_path: Path) -> None:
    framework = "jax_xla" if backend in ("envpool_xla", "device") else "torch_eager"
    words = ["env=cartpole_masked", f"backend={backend}", f"framework={framework}", "ppo.num_envs=4", "device=cpu"]
    words += ["ppo.num_steps=8", "total_timesteps=64", "checkpoint.every_iterations=1", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0  # with environments that restart in between
    config = load_config(words)
    assert (config.run_folder / "result.json").exists()
    assert config.run_folder != load_config([*words, "env.observe=[0,1]"]).run_folder
