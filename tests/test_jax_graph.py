"""The runner whose iteration is one program: it does what the host's runner does."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.commands.interface import train
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.host import JaxVectorEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Episode, Metrics
from ppo_bench.runners.program_runner import ProgramRunner, ProgramState
from ppo_bench.runs.loop import next_export
from tests.runners import played, problem_for, runner_for

SEED = 3
NORMALIZED = ["ppo.norm_obs=true", "ppo.norm_reward=true"]


def run(
    framework: str, env: VectorEnv | GraphEnv, iterations: int, overrides: list[str]
) -> tuple[Arrays, list[Metrics], list[Episode]]:
    """Arrays at the end, and the metrics and episodes of all iterations; environments restart after the second one."""
    runner = runner_for(framework, problem_for(env, 10, overrides))
    assert isinstance(runner, ProgramRunner) == isinstance(env, GraphEnv)
    return played(runner, SEED, iterations, restart_after=2)


@functools.cache
def run_in_a_program(*overrides: str) -> tuple[Arrays, list[Metrics], list[Episode]]:
    return run("jax_xla", DynamicsEnv(CartPole(), 4), 4, list(overrides))


@pytest.mark.parametrize("overrides", [[], NORMALIZED, ["ppo.mask_resets=false", "ppo.bootstrap_truncated=false"]])
def test_an_iteration_in_one_program_is_that_of_pytorch_on_the_host(overrides: list[str]) -> None:
    precise = ["precision=float64", *overrides]
    expected, expected_rows, expected_episodes = run(
        "torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), 4, precise
    )
    found, rows, episodes = run_in_a_program(*precise)
    assert episodes == expected_episodes
    assert len(episodes) > 20
    assert [[*row] for row in rows] == [[*row] for row in expected_rows]
    numbers, expected_numbers = ([[*row.values()] for row in each] for each in (rows, expected_rows))
    np.testing.assert_allclose(numbers, expected_numbers, rtol=1e-8, atol=1e-12)
    expected = {name: array for name, array in expected.items() if not name.startswith("envs.")}
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_allclose(found[name], array, rtol=1e-8, atol=1e-10, err_msg=name)


def test_iterations_enqueued_ahead_are_the_same_iterations() -> None:
    """Seven of them: one by one, and up to the third, sixth and last."""
    spec = problem_for(DynamicsEnv(CartPole(), 4), 7, NORMALIZED)
    ends: list[Arrays] = []
    given: list[list[tuple[Metrics, list[Episode]]]] = []
    for interval in (1, 3):
        runner = ProgramRunner(spec)
        state = runner.init(SEED)
        rows = []
        for i in range(7):
            state, metrics, episodes = runner.iterate(state, (i // interval + 1) * interval)
            rows.append((metrics, episodes))
            state = runner.restart_envs(state) if i == 2 else state
        given.append(rows)
        ends.append(runner.export(state))
        assert runner.iteration_program(state)._cache_size() == 1  # type: ignore[attr-defined]  # enqueued, or restarted: one program
    assert given[0] == given[1]
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_runner_enqueues_what_it_may_and_nothing_past_the_end() -> None:
    spec = problem_for(DynamicsEnv(CartPole(), 4), 9, [])
    runner = ProgramRunner(spec)
    state, ahead = runner.init(SEED), []
    for until in (0, 2, 5, 5, 5, 5, 99, 99, 99):
        state, _, _ = runner.iterate(state, until)
        ahead.append(len(state.pending))
    assert ahead == [0, 0, 2, 1, 0, 0, 2, 1, 0]


@pytest.mark.parametrize("listens", [False, True])
def test_a_training_goes_ahead_up_to_the_next_export(
    listens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener sees each iteration before the next one begins."""
    found, iterate = list[int](), ProgramRunner.iterate

    def recorded(runner: ProgramRunner, state: ProgramState, until: int) -> tuple[ProgramState, Metrics, list[Episode]]:
        found.append(until)
        return iterate(runner, state, until)

    monkeypatch.setattr(ProgramRunner, "iterate", recorded)
    words = ["env=cartpole", "framework=jax_xla", "backend=device", "device=cpu", "total_timesteps=3584"]
    train(
        [*words, "checkpoint.every_iterations=2", f"outputs={tmp_path}"],
        on_iteration=(lambda *_: None) if listens else None,
    )
    assert found == ([0] * 7 if listens else [2, 2, 4, 4, 6, 6, 7])


def test_the_next_export_is_that_of_a_checkpoint_an_evaluation_or_the_end() -> None:
    words = ["checkpoint.every_iterations=6", "total_timesteps=10_240"]
    config = load_config([*words, "evaluation.every_iterations=4"])
    assert [next_export(config, k) for k in range(20)] == [
        *(4, 4, 4, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 18, 18, 20, 20)
    ]
    assert [next_export(load_config(words), k) for k in (0, 5, 6, 17, 19)] == [6, 6, 12, 18, 20]
