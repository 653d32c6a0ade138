"""The comparison of frameworks: real processes agree, and a difference is found, counted and explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.commands.equivalence.__main__ import main
from ppo_bench.commands.equivalence.config import load
from ppo_bench.commands.equivalence.differences import TOLERANCES, IterationOutcome, compare
from ppo_bench.commands.equivalence.processes import FrameworkProcess, iterations, played
from ppo_bench.commands.equivalence.rounding import Tie, count_tied_actions, ties
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import RunError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.mathematics.arrays import Arrays
from tests.refusals import assert_one_line

pytestmark = pytest.mark.slow

SMALL = ["env=cartpole", "backend=gymnasium", "total_timesteps=2048"]
LOSSES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "explained_variance")
METRICS = dict(zip(LOSSES, (0.5, 20.0, 0.7, 0.0, 0.0, 0.1), strict=True)) | {
    "learning_rate": 1e-3,
    "clip_fraction": 0.5,
    "gradient_norm": 2.0,
    "masked_fraction": 0.0,
}


def outcome(actions: np.ndarray, parameters: list[float], before: float = 0.0, **metrics: float) -> IterationOutcome:
    started = {"params.a": np.full(len(parameters), before)}
    return IterationOutcome(actions, started, {"params.a": np.array(parameters)}, METRICS | metrics, None)


def test_differing_actions_are_counted() -> None:
    leader = outcome(np.array([[0, 1], [1, 0]]), [3.0, 4.0])
    found = compare(leader, outcome(np.array([[0, 1], [0, 1]]), [3.0, 4.5]), 0.0, LOSSES)
    assert found.actions == 2
    assert found.parameters == pytest.approx(0.5 / 5.0)
    assert (found.losses, found.gradient_norm) == (0.0, 0.0)


def test_parameters_that_hardly_move_are_held_to_their_movement() -> None:
    """Late in annealing an update that is wrong altogether is a small part of the parameters themselves."""
    actions, tolerance = np.zeros((1, 1), np.int64), TOLERANCES["float32"]
    leader = outcome(actions, [1.0 + 1e-5], before=1.0)
    backwards = compare(leader, outcome(actions, [1.0 - 1e-5]), 0.0, LOSSES)
    assert backwards.parameters == pytest.approx(2e-5, rel=1e-4)
    assert backwards.parameters < tolerance.parameters
    assert backwards.movement == pytest.approx(2.0)
    assert not backwards.within(tolerance)
    near = compare(leader, outcome(actions, [1.0 + 1.01e-5]), 0.0, LOSSES)
    assert near.movement == pytest.approx(0.01)
    assert near.within(tolerance)
    # A movement of one unit in the last place of float32 is rounded whole.
    stored = compare(outcome(actions, [1.0 + 1.2e-7], before=1.0), outcome(actions, [1.0]), 0.0, LOSSES)
    assert stored.movement == pytest.approx(1.0)
    assert stored.within(tolerance)


def test_losses_are_compared_relative_to_those_above_1_and_gradient_norms_always() -> None:
    actions = np.zeros((1, 1), np.int64)
    leader = outcome(actions, [1.0])
    assert compare(leader, outcome(actions, [1.0], value_loss=22.0), 0.0, LOSSES).losses == pytest.approx(0.1)
    assert compare(leader, outcome(actions, [1.0], policy_loss=0.75), 0.0, LOSSES).losses == pytest.approx(0.25)
    assert compare(leader, outcome(actions, [1.0], gradient_norm=3.0), 0.0, LOSSES).gradient_norm == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["policy_loss", "explained_variance", "gradient_norm"])
def test_a_number_on_one_side_alone_is_infinitely_far_and_on_neither_side_the_same(name: str) -> None:
    actions, nan = np.zeros((1, 1), np.int64), float("nan")
    number, none = outcome(actions, [1.0]), outcome(actions, [1.0], **{name: nan})
    assert not compare(number, none, 0.0, LOSSES).within(TOLERANCES["bfloat16"])
    assert not compare(none, number, 0.0, LOSSES).within(TOLERANCES["bfloat16"])
    assert compare(none, none, 0.0, LOSSES).within(TOLERANCES["float64"])


def test_continuous_actions_count_once_a_vector_and_only_beyond_the_tolerance() -> None:
    leader = outcome(np.zeros((2, 1, 2)), [1.0])
    other = outcome(np.array([[[1e-6, 0.0]], [[0.1, 0.1]]]), [1.0])
    assert compare(leader, other, 1e-4, LOSSES).actions == 1


def test_frameworks_take_the_same_actions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """test_pages.py runs docs/equivalence.md, which compares them on gymnasium."""
    arguments = [*SMALL, "backend=device", "precision=float64", f"outputs={tmp_path}"]
    assert exit_code(main, arguments) == 0
    (report,) = tmp_path.glob("equivalence/*/seed1/equivalence.json")
    found = json.loads(report.read_text())
    assert {found["leader"], *found["frameworks"]} == set(FRAMEWORKS)
    for framework in found["frameworks"].values():
        assert framework["differing_actions"] == 0
        assert max(framework["largest"].values()) < 1e-10
        assert len(framework["parameters_distances"]) == 4
    assert "the frameworks do the same" in capsys.readouterr().out


@pytest.fixture(scope="module")
def led() -> IterationOutcome:
    """The second iteration of a real leader."""
    config = load([*SMALL, "framework=torch_eager"])
    return [outcome for outcome, _ in iterations({"torch_eager": config})][1]


def with_even_scores(led: IterationOutcome, t: int, n: int, gap: float) -> tuple[IterationOutcome, IterationOutcome]:
    """A leader whose choices at step `t` of environment `n` score `gap` apart, and one that chose the other."""
    other = led.actions.copy()
    other[t, n] = 1 - other[t, n]
    (tie,) = ties(*played(load(SMALL), led), led, led._replace(actions=other), 2, tolerance=np.inf)
    # The bias of the leader's choice comes down by the margin, less `gap`.
    bias = led.before["params.actor.2.bias"].astype(np.float64)
    bias[tie.leader_action] -= tie.margin - gap
    return led._replace(before=led.before | {"params.actor.2.bias": bias}), led._replace(actions=other)


def test_an_action_that_hangs_on_rounding_is_a_tie_and_its_margin_is_told(led: IterationOutcome) -> None:
    leader, other = with_even_scores(led, 5, 2, gap=1e-6)
    (tie,) = ties(*played(load(SMALL), led), leader, other, 2, tolerance=1e-5)
    assert (tie.iteration, tie.step, tie.env) == (2, 5, 2)
    assert tie.leader_action == led.actions[5, 2]
    assert tie.other_action == 1 - led.actions[5, 2]
    assert tie.margin == pytest.approx(1e-6, rel=1e-6)


def test_an_action_of_several_components_is_tied_where_all_that_differ_are() -> None:
    leader = outcome(np.array([[[0, 0], [0, 0]], [[0, 0], [0, 0]]]), [1.0])
    other = outcome(np.array([[[1, 1], [1, 0]], [[1, 1], [0, 0]]]), [1.0])
    assert compare(leader, other, 0.0, LOSSES).actions == 3
    found = [Tie(1, *place, 0, 1, 0.0, 1.0) for place in ((0, 0), (0, 1), (1, 0), (1, 0))]
    # Of the first action one component ties and one truly differs; of the last both tie.
    tied = count_tied_actions(leader, other, found)
    assert json.dumps(tied) == "2"  # as it is written


def test_a_plain_difference_of_actions_is_no_tie(led: IterationOutcome) -> None:
    leader, other = with_even_scores(led, 5, 2, gap=1e-3)
    assert ties(*played(load(SMALL), led), leader, other, 2, tolerance=1e-5) == []


def test_an_illegal_choice_makes_no_ties() -> None:
    """Its logit of -1e9 is no score that actions were chosen by."""
    words = ["env=acrobot", "backend=gymnasium", "framework=torch_eager", "total_timesteps=512"]
    ((led, _),) = iterations({"torch_eager": load(words)})
    spec, policy_inputs = played(load(words), led)
    masked = [one._replace(action_mask=np.tile([True, True, False], (4, 1))) for one in policy_inputs]
    swapped = np.where(led.actions == 2, 2, 1 - led.actions)
    assert ties(spec, masked, led, led._replace(actions=swapped), 1, tolerance=1e-5) == []
    assert len(ties(spec, masked, led, led._replace(actions=swapped), 1, tolerance=np.inf)) > 100


def test_no_action_that_is_not_a_number_is_the_same() -> None:
    leader, other = outcome(np.array([[[0.5], [0.5]]]), [1.0]), outcome(np.array([[[0.5], [np.nan]]]), [1.0])
    assert compare(leader, other, 1e-4, LOSSES).actions == 1


def test_the_margins_of_the_actions_taken_are_never_negative(led: IterationOutcome) -> None:
    """Scores are those that the runner chose by: the action taken has the highest, at every step."""
    everywhere = ties(*played(load(SMALL), led), led, led._replace(actions=1 - led.actions), 2, tolerance=np.inf)
    assert len(everywhere) == 512
    assert min(tie.margin for tie in everywhere) > -1e-6


def follow(follower: FrameworkProcess, before: Arrays, steps: Any) -> IterationOutcome:
    follower.send((before, steps))
    return follower.outcome()


def test_a_follower_that_starts_elsewhere_arrives_elsewhere(led: IterationOutcome) -> None:
    moved: Arrays = {k: v * np.float32(1.01) if k == "params.critic.2.bias" else v for k, v in led.before.items()}
    moved["params.critic.0.weight"] = led.before["params.critic.0.weight"] + np.float32(1e-2)
    with FrameworkProcess(load([*SMALL, "framework=jax_xla"])) as follower:
        same = compare(led, follow(follower, led.before, led.steps), 0.0, LOSSES)
        other = compare(led, follow(follower, moved, led.steps), 0.0, LOSSES)
    assert same.within(TOLERANCES["float32"])
    assert not other.within(TOLERANCES["float32"])


def test_a_process_that_ends_is_an_error_that_points_at_its_own(led: IterationOutcome) -> None:
    with (
        FrameworkProcess(load([*SMALL, "framework=torch_eager"])) as follower,
        pytest.raises(RunError, match="the process of torch_eager ended; its own error is above"),
    ):
        follow(follower, {}, None)


def test_leaders_restart_their_environments_when_training_does() -> None:
    config = load([*SMALL, "framework=torch_eager", "checkpoint.every_iterations=2"])
    befores = [outcome.before for outcome, _ in iterations({"torch_eager": config})]
    starts = [bool((before["envs.lengths"] == 0).all()) for before in befores]
    assert starts == [True, False, True, False]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("framework=torch_eager tuning=on", "only torch_eager: name two programs, as in framework="),
        ("framework=torch_eager,torch_eager", "only torch_eager: name two"),
        ("seed=1,2", "seed: compare with one value after the other"),
        ("ppo.num_envs=4,8", "ppo.num_envs: compare with one value after the other"),
        ("env=cartpole,acrobot", "env: compare with one value after the other"),
        ("env.kwargs={},{sutton_barto_reward:true}", "env: compare with one value after the other"),
        ("num_seeds=2", "num_seeds=2 has no meaning here"),
    ],
)
def test_wrong_input_is_one_line(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [*SMALL, *override.split()]) == 2
    assert_one_line(capsys.readouterr().err, message)


def test_a_framework_is_compared_with_itself_by_other_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["framework=torch_eager", "tuning=on,off", "ppo.update_epochs=2,3", f"outputs={tmp_path}"]
    assert exit_code(main, [*SMALL, *words]) == 1  # epochs make another training, tuning does not
    shown = capsys.readouterr().out
    assert "torch_eager tuning=off ppo.update_epochs=2" in shown
    assert "the frameworks do not do the same" in shown
    (found,) = tmp_path.rglob("equivalence.json")
    largest = {
        name: each["largest"]["parameters"] for name, each in json.loads(found.read_text())["frameworks"].items()
    }
    assert largest["torch_eager tuning=off ppo.update_epochs=2"] == 0.0
    assert largest["torch_eager tuning=off ppo.update_epochs=3"] > 1e-4
    assert largest["torch_eager tuning=on ppo.update_epochs=3"] > 1e-4
