"""Opponents from the past, and ratings of checkpoints by games between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from ppo_bench.commands.__main__ import main
from ppo_bench.commands.equivalence.command import main as equivalence
from ppo_bench.commands.equivalence.differences import IterationOutcome
from ppo_bench.commands.equivalence.explain import _logits
from ppo_bench.commands.equivalence.processes import played
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.replay import RecordingEnv
from ppo_bench.mathematics import noise
from ppo_bench.networks.torch import TorchOps
from ppo_bench.runners.checkpoint import load
from ppo_bench.runners.computation import computation_of
from ppo_bench.runners.opponents import Opponents, sides
from tests.runners import ACTING

SMALL = [
    "env=connect_four",
    "ppo.num_envs=16",
    "ppo.num_steps=16",
    "ppo.num_minibatches=4",
    "network.hidden_sizes=[16]",
]
PAST = [*SMALL, "opponents=past", "opponents.every_iterations=2", "opponents.pool_size=3"]


# --- Who plays --------------------------------------------------------------------------------------------------------


def test_in_each_game_one_row_plays_the_past_and_seats_take_turns() -> None:
    own, theirs, order = sides(8, 2)
    assert (own.tolist(), theirs.tolist()) == ([1, 2, 5, 6], [0, 3, 4, 7])
    assert_array_equal(np.concatenate([own, theirs])[order], np.arange(8))
    own, theirs, _ = sides(12, 3)
    assert (own.tolist(), theirs.tolist()) == ([1, 2, 3, 5, 6, 7, 10, 11], [0, 4, 8, 9])


def test_the_policy_takes_the_place_of_the_oldest() -> None:
    opponents = Opponents(pool_size=3, every_iterations=10)
    joined = [(k, opponents.place(k)) for k in range(1, 51) if opponents.joins(k)]
    assert joined == [(10, 0), (20, 1), (30, 2), (40, 0), (50, 1)]


def test_who_plays_is_drawn_alike_in_every_framework_and_each_equally_often() -> None:
    opponents, iterations = Opponents(pool_size=4), range(1, 401)

    def drawn(xp: Any, array: Any) -> list[int]:
        return [int(opponents.drawn(xp, array([7]), array([k]))[0]) for k in iterations]

    places = drawn(np, lambda values: np.array(values, np.int32))
    assert places == drawn(torch, lambda values: torch.tensor(values, dtype=torch.int32))
    assert places[:20] == drawn(jnp, lambda values: jnp.array(values, jnp.int32))[:20]
    counts = np.bincount(places, minlength=4)
    assert len(counts) == 4
    assert (abs(counts - 100) < 5 * np.sqrt(75)).all()


def host_env(config: Any) -> VectorEnv:
    env = config.backend.make(config.task)
    assert not isinstance(env, GraphEnv)
    return env


@pytest.mark.parametrize("framework", ACTING)
def test_their_rows_play_the_pools_parameters_and_others_their_own(framework: str) -> None:
    """An opponent with a bias of 50 for one column plays nothing else where that is legal."""
    config = load_config([*PAST, f"framework={framework}", "opponents.every_iterations=1000"])
    env = RecordingEnv(host_env(config))  # as in lockstep
    runner = config.framework.runner(config.problem(env))
    arrays = runner.export(runner.init(1))
    biased = max(name for name in arrays if name.startswith("opponents.actor.") and name.endswith("bias"))
    before = {name: array.copy() for name, array in arrays.items() if name.startswith("opponents.")}
    assert len(before[biased]) == 3
    arrays[biased][:, 2] = before[biased][:, 2] = 50.0
    state, _, episodes = runner.step(runner.restore(arrays))
    after = runner.export(state)
    steps, actions = env.take()
    runner.close()
    acts, legal = steps.acts, steps.legal
    assert acts is not None
    assert legal is not None
    own, theirs, _ = sides(16, 2)
    moved = acts[:-1] & legal[:-1, :, 2]  # in the step after
    assert moved[:, theirs].sum() > 20
    assert (actions[1:][:, theirs][moved[:, theirs]] == 2).all()
    assert len(set(actions[1:][:, own][moved[:, own]].tolist())) == 7
    assert {episode.env for episode in episodes} <= set(own.tolist())
    for name, array in before.items():
        assert_array_equal(after[name], array)
    assert any((after[name] != arrays[name]).any() for name in arrays if name.startswith("params."))


def test_their_transitions_teach_nothing() -> None:
    config = load_config([*PAST, "framework=torch_eager"])
    env = host_env(config)
    problem = config.problem(env)
    env.close()
    computation = computation_of(problem, TorchOps(torch.float32, torch.float32), torch.from_numpy)
    generator = torch.Generator().manual_seed(0)
    steps, num_rows, network = problem.ppo.num_steps, problem.ppo.num_envs, problem.network

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    rollout = {
        "obs": drawn(steps + 1, num_rows, *network.input_shape),
        "heads": drawn(steps + 1, num_rows, network.actions.lanes),
        "values": drawn(steps + 1, num_rows),
        "actions": torch.zeros(steps + 1, num_rows, dtype=torch.int64),
        "legal": torch.ones(steps + 1, num_rows, network.actions.lanes, dtype=torch.bool),
        **{flag: (drawn(steps, num_rows) > 0.5).float() for flag in computation.flags},
        **{name: torch.ones(1, dtype=torch.int32) for name in ("seed", "iteration", "first_row")},
    }
    theirs = sides(num_rows, 2).theirs
    altered = {name: x.clone() for name, x in rollout.items()}
    for name in ("obs", "heads", "values", *computation.flags):
        altered[name][:, theirs] = 1 - altered[name][:, theirs]
    one, other = (computation.targets({}, {}, each).batch for each in (rollout, altered))
    for name, array in one.items():
        assert torch.equal(array, other[name])
        assert len(array) == steps * num_rows // 2 == computation.samples.size


def test_lockstep_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network with a memory; tests/test_devices_lockstep.py has games of one without."""
    words = [word for word in PAST if not word.startswith("network.")]
    words += ["network=gru", "total_timesteps=2560", "precision=float64", "frameworks=[torch_eager,jax_xla]"]
    assert equivalence([*words, f"outputs={tmp_path}"]) == 0
    assert "the frameworks do the same" in capsys.readouterr().out


@pytest.mark.parametrize("network", ["wide_mlp", "gru"])
def test_scores_that_explain_a_tie_are_those_of_who_played(network: str) -> None:
    """Logits of the explanation, with the noise of each step, choose every action that either side took."""
    words = [word for word in PAST if network == "wide_mlp" or not word.startswith("network.")]
    config = load_config([*words, f"network={network}", "framework=torch_eager", "precision=float64"])
    env = RecordingEnv(host_env(config))
    runner = config.framework.runner(config.problem(env))
    state = runner.init(1)
    for iteration in (1, 2, 3):
        before = runner.export(state)
        state, metrics, _ = runner.step(state)
        recording = env.take()
        outcome = IterationOutcome(recording.actions, before, runner.export(state), metrics, recording.steps)
        seed, number = (np.array([value], np.int32) for value in (1, iteration))
        steps, envs, lanes = (np.arange(size, dtype=np.int32) for size in (16, 16, 7))
        words_of_step = noise.action_words(np, seed, number, steps, envs, lanes)
        gumbel = noise.gumbel(np, words_of_step, np.float64)
        assert_array_equal((_logits(*played(config, outcome), outcome) + gumbel).argmax(-1), recording.actions)
    runner.close()


def test_games_in_a_program_have_opponents_too(tmp_path: Path) -> None:
    words = [*PAST, "backend=jax", "framework=jax_xla", "total_timesteps=2048", "rating.games=4", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    (final,) = tmp_path.rglob("checkpoints/iteration_00000008")
    arrays = load(final).arrays
    assert arrays["opponents.actor.0.bias"].shape[0] == 3
    assert_array_equal(arrays["opponents.actor.0.bias"][0], arrays["params.actor.0.bias"])
    assert (arrays["opponents.actor.0.bias"][1] != arrays["params.actor.0.bias"]).any()  # of iteration 4


# --- A run ------------------------------------------------------------------------------------------------------------
