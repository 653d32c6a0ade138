"""A user-defined algorithm trains, and rules of an environment's own are the same in every framework."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.__main__ import main
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.commands.query import main as query
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import PolicyInput
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.host import JaxVectorEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Metrics
from tests.runners import played, problem_for, runner_for
from tests.seams import LEVELLED, SMALL
from tests.training import timeless

PRECISE = ["precision=float64", "ppo.norm_obs=true", "ppo.norm_reward=true"]


def trained(framework: str, env: Any, overrides: Sequence[str]) -> tuple[Arrays, list[Metrics]]:
    """Arrays and rows after three iterations, whose environments restart after the second."""
    arrays, rows, _ = played(runner_for(framework, problem_for(env, 10, [*SMALL, *overrides])), 3, 3, restart_after=2)
    return arrays, rows


def test_what_was_added_learns_is_counted_or_stays_as_its_kind_says() -> None:
    before = runner_for("torch_eager", problem_for(JaxVectorEnv(DynamicsEnv(CartPole(), 4)), 10, LEVELLED))
    begun = before.export(before.init(3))
    arrays, rows = trained("torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), LEVELLED)
    assert begun["params.level"] == 0.0
    assert arrays["params.level"] > 0.0
    assert arrays["adam.mean.level"] != 0.0
    assert_array_equal(arrays["frozen.projection"], begun["frozen.projection"])
    assert_allclose(begun["frozen.projection"] @ begun["frozen.projection"].T, np.eye(2), atol=1e-6)
    value_mask = sum(32 * (1.0 - row["masked_fraction"]) for row in rows)
    assert arrays["statistics.transitions"] == rows[-1]["transitions"] == value_mask
    without, _ = trained("torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), [])
    assert not {name for name in without if "level" in name or name.startswith(("frozen.", "statistics."))}


# --- Rules and streams ------------------------------------------------------------------------------------------------


class Ruled(DynamicsEnv):
    """CartPole in which only a push to the right is legal after every second step."""

    masks_actions = True

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> tuple[Any, PolicyInput]:
        self._stack = xp.stack
        state, policy_input = super().reset(xp, seeds, device)
        return state, policy_input._replace(action_mask=self._action_mask(state))

    def step(self, state: Any, actions: Any) -> Any:
        state, step = super().step(state, actions)
        return state, step._replace(action_mask=self._action_mask(state))

    def _action_mask(self, state: Any) -> Any:
        return self._stack([state.steps % 2 == 0, state.done | True], -1)


def test_rules_in_a_program_are_those_on_the_host() -> None:
    expected, expected_rows = trained("torch_eager", JaxVectorEnv(Ruled(CartPole(), 4)), PRECISE)
    found, rows = trained("jax_xla", Ruled(CartPole(), 4), PRECISE)
    free, _ = trained("jax_xla", DynamicsEnv(CartPole(), 4), PRECISE)
    assert_allclose([list(row.values()) for row in rows], [list(row.values()) for row in expected_rows], rtol=1e-8)
    weight = "params.actor.0.weight"
    assert_allclose(found[weight], expected[weight], rtol=1e-8)
    assert abs(free[weight] - found[weight]).max() > 1e-5


def test_rules_of_environments_that_pytorch_steps_are_refused() -> None:
    runner = runner_for("torch_eager", problem_for(Ruled(CartPole(), 4), 10, SMALL))
    with pytest.raises(ConfigError, match="that have no masks: use framework=jax_xla"):
        runner.init(3)


class Rated(Ppo):
    """PPO that says which learning rate its loss was given."""

    def loss(self, ops: Any, network: Any, hp: Any, *inputs: Any) -> Any:
        total, metrics = super().loss(ops, network, hp, *inputs)
        return total, {**metrics, "old_approx_kl": 0.0 * total + hp.learning_rate}


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_an_algorithm_sees_the_learning_rate_of_the_configuration(framework: str) -> None:
    spec = problem_for(DynamicsEnv(CartPole(), 4), 10, [*SMALL, "precision=float64"])
    _, rows, _ = played(runner_for(framework, replace(spec, algorithm=Rated("ppo"))), 3, 2, restart_after=9)
    assert [row["old_approx_kl"] for row in rows] == pytest.approx([spec.ppo.learning_rate] * 2)
    assert rows[1]["learning_rate"] == pytest.approx(0.9 * spec.ppo.learning_rate)


# --- From the command line to the report -----------------------------------------------------------------------------

RUN = ["env=cartpole", "device=cpu", *SMALL, "total_timesteps=768", "checkpoint.every_iterations=4"]


@pytest.mark.slow
def test_a_new_metric_is_in_rows_trackers_and_report_and_its_run_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = [*RUN, "tracker=tensorboard", *LEVELLED, f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    folder = load_config(words).run_folder
    rows = timeless(folder)
    assert rows[-1]["level_loss"] > 0.0
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert {"losses/level", "charts/transitions", "losses/policy_loss"} <= set(events.Tags()["scalars"])
    assert [e.value for e in events.Scalars("charts/transitions")] == [row["transitions"] for row in rows]
    capsys.readouterr()
    assert query(["select max(transitions) as seen, count(level_loss) as rows from metrics", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{rows[-1]['transitions']:.0f}" in shown.replace(",", "")
    returns = {}
    for framework in ("torch_eager", "jax_xla"):
        assert evaluate([str(folder), f"framework={framework}", "episodes=4"]) == 0
        written = max((folder / "evaluations").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        returns[framework] = json.loads(written.read_text())["returns"]
    assert returns["torch_eager"] == returns["jax_xla"]
