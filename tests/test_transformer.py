"""Transformer-XL policies: attention by hand, windows end where episodes begin, executions agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics import attention, ppo
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.networks.transformer import Trxl
from tests.namespaces import NAMESPACES, Namespace
from tests.runners import ACTING, problem_for, runner_for
from tests.scenes import Endings

ROWS, STEPS = 3, 5
DIM = 8
WAYS: dict[str, tuple[Any, Callable[[np.ndarray], Any]]] = {
    "torch": (TorchOps(torch.float64, torch.float64), torch.from_numpy),
    "jax": (JaxOps(jnp.dtype("float64"), jnp.dtype("float64")), jnp.asarray),
}
"""The operations of each library in float64, and what makes an array of NumPy's its own."""


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """An array of normal numbers."""
    return np.random.default_rng(seed).normal(size=shape)


# --- Attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ns", NAMESPACES.values(), ids=list(NAMESPACES))
def test_attention_by_hand(ns: Namespace) -> None:
    """One head of one dimension; products 1 and 2 of the rows that are seen, then of none."""
    query, rows = np.array([[[1.0]], [[3.0]]]), np.array([[[[9.0]], [[1.0]], [[2.0]]]] * 2)
    seen = np.array([[False, True, True], [False, False, False]])
    means, sums = ns.run(attention.attend, query, rows, seen)
    share = 1 / (1 + np.exp(1.0))
    assert_allclose(means[0, 0, 0], share * 1 + (1 - share) * 2, rtol=1e-6)
    assert means[1, 0, 0] == 0.0
    assert_allclose(sums[:, 0], [1.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("ns", NAMESPACES.values(), ids=list(NAMESPACES))
def test_positions_by_hand(ns: Namespace) -> None:
    found = ns.run(attention.sinusoids, np.array([0.0, 3.0]), np.zeros((2, 4)))
    expected = [[0, 0, 1, 1], [np.sin(3), np.sin(0.03), np.cos(3), np.cos(0.03)]]
    assert_allclose(found, expected, atol=1e-6)


# --- Windows ----------------------------------------------------------------------------------------------------------


def network(positions: str = "absolute", memory: int = STEPS) -> NetworkSpec:
    trxl = Trxl(layers=2, heads=2, dim=DIM, memory=memory, positions=positions, max_episode_steps=20)
    return trxl.build(spaces.Box(-9, 9, (4,), np.float32), spaces.Discrete(3))


@pytest.mark.parametrize("positions", ["none", "absolute", "learned"])
def test_a_window_ends_where_its_episode_begins(positions: str) -> None:
    """After a start nothing from before is seen, three steps later three rows are, and never more than the memory."""
    network_spec, ops = network(positions), WAYS["torch"][0]
    params: Any = {n: torch.from_numpy(a).double() for n, a in initial_weights(network_spec.parameters, 1).items()}
    obs, start = torch.from_numpy(drawn(12, 1, 4)), torch.zeros(12, 1).double()
    start[0], start[4] = 1, 1

    def heads(obs: torch.Tensor) -> torch.Tensor:
        carry: Any = {c.name: torch.full((1, *c.shape), 7.0, dtype=torch.float64) for c in network_spec.carry}
        rows = []
        for t in range(12):
            policy_outputs, _, carry = network_spec.step(ops, params, obs[t], carry, start[t])
            rows.append(policy_outputs[0])
        return torch.stack(rows)

    expected = heads(obs)
    for changed, reached in ((1, range(1, 4)), (4, range(4, 12)), (6, range(6, 12)), (11, range(11, 12))):
        other = obs.clone()
        other[changed] += 1.0
        differs = (heads(other) != expected).any(-1).flatten().nonzero().flatten().tolist()
        # Layers pass what they saw on, so that a step reaches further than its row: by the memory of each layer.
        assert differs == [t for t in reached if t <= changed + 2 * STEPS]


# --- Annealing --------------------------------------------------------------------------------------------------------


def test_coefficients_fall_to_their_last_values() -> None:
    assert [ppo.linear_schedule(2.0, 0.5, passed) for passed in (0.0, 0.5, 1.0)] == [2.0, 1.25, 0.5]
    words = ["ppo.num_envs=2", "ppo.num_steps=8", "ppo.learning_rate=1.0", "ppo.final_learning_rate=0.5"]
    hp = load_config([*words, "ppo.num_minibatches=1", "ppo.anneal_timesteps=64", "total_timesteps=160"]).ppo
    assert [hp.learning_rate_of(iteration, 10) for iteration in (1, 2, 5, 6, 10)] == [1.0, 0.875, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("framework", ACTING)
def test_the_entropy_bonus_falls(framework: str) -> None:
    """Once it has fallen to nothing the policy learns what it learns without one; before, another."""

    def iterated(arrays: Arrays | None, *words: str) -> Arrays:
        """The arrays after one more iteration."""
        scenes = Endings(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(3), 16)
        fixed = ["precision=float64", "ppo.num_steps=16", "ppo.num_minibatches=1", "ppo.update_epochs=1"]
        fixed.append("ppo.anneal_lr=false")
        runner = runner_for(framework, problem_for(scenes, 10, [*fixed, *words]))
        state, _, _ = runner.iterate(runner.restore(arrays) if arrays else runner.init(1))
        after = runner.export(state)
        runner.close()
        return after

    def distance(one: Arrays, other: Arrays) -> float:
        return float(np.abs(one["params.actor.0.weight"] - other["params.actor.0.weight"]).max())

    batch = load_config(["ppo.num_steps=16"]).ppo.num_envs * 16
    falling = ["ppo.ent_coef=0.5", "ppo.final_ent_coef=0.0", f"ppo.anneal_timesteps={batch}"]
    first, without = iterated(None, *falling), iterated(None, "ppo.ent_coef=0.0")
    assert distance(first, without) > 1e-6
    assert distance(iterated(first, *falling), iterated(first, "ppo.ent_coef=0.0")) < 1e-12


@pytest.mark.parametrize("framework", ACTING)
def test_weights_decay(framework: str) -> None:
    """With steps along gradients of almost nothing, weights shrink by the learning rate times the decay."""
    scenes = Endings(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(3), 16)
    words = [
        "precision=float64",
        "ppo.num_steps=16",
        "ppo.num_minibatches=2",
        "ppo.update_epochs=3",
        "ppo.anneal_lr=false",
    ]
    words += ["ppo.adam_eps=1e30", "ppo.learning_rate=0.1", "ppo.weight_decay=0.5"]
    runner = runner_for(framework, problem_for(scenes, 10, words))
    begun = runner.init(1)
    before = runner.export(begun)["params.actor.0.weight"]
    state, _, _ = runner.iterate(begun)
    assert_allclose(runner.export(state)["params.actor.0.weight"], before * (1 - 0.05) ** 6, rtol=1e-12)
    runner.close()


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
