"""Recurrent networks: gradients equal finite differences, and tasks that need a memory are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.networks.torch.recurrence import run_recurrence

STEPS, ROWS, UNITS = 7, 3, 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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


@pytest.mark.parametrize("backend", ["gymnasium", "envpool", pytest.param("device", marks=pytest.mark.slow)])
def test_components_are_selected_on_every_backend(backend: str, tmp_path: Path) -> None:
    framework = "jax_xla" if backend == "device" else "torch_eager"
    words = ["env=cartpole_masked", f"backend={backend}", f"framework={framework}", "ppo.num_envs=4", "device=cpu"]
    words += ["ppo.num_steps=8", "total_timesteps=64", "checkpoint.every_iterations=1", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0  # with environments that restart in between
    config = load_config(words)
    assert (config.run_folder / "result.json").exists()
    assert config.run_folder != load_config([*words, "env.observe=[0,1]"]).run_folder
