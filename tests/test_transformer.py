"""Transformer-XL policies learn what needs a memory; coefficients that its script anneals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics import ppo


def test_coefficients_fall_to_their_last_values() -> None:
    assert [ppo.linear_schedule(2.0, 0.5, passed) for passed in (0.0, 0.5, 1.0)] == [2.0, 1.25, 0.5]
    words = ["ppo.num_envs=2", "ppo.num_steps=8", "ppo.learning_rate=1.0", "ppo.final_learning_rate=0.5"]
    hp = load_config([*words, "ppo.num_minibatches=1", "ppo.anneal_timesteps=64", "total_timesteps=160"]).ppo
    assert [hp.learning_rate_of(iteration, 10) for iteration in (1, 2, 5, 6, 10)] == [1.0, 0.875, 0.5, 0.5, 0.5]


# --- Runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_learns_what_needs_a_memory(tmp_path: Path) -> None:
    """CleanRL's settings and steps; who knows the end gets 1.2 on average, who does not 0."""
    words = ["experiment=cleanrl/ppo_trxl_proof_of_memory", "framework=torch_eager", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    folder = load_config(words).run_folder
    assert exit_code(evaluate, [str(folder), "episodes=1000"]) == 0
    (found,) = (json.loads(path.read_text())["returns"] for path in (folder / "evaluations").glob("*.json"))
    assert sum(returned > 0 for returned in found) >= 950
