"""Effects of turns and masks on learning, computed by hand for a game of three moves and games of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose

from ppo_bench.common.errors import RunError
from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.mathematics import ppo
from tests.namespaces import Namespace
from tests.probes import Probe
from tests.runners import ACTING, after_iterations, policy_outputs_and_values, problem_for, runner_for
from tests.test_losses import normalized


def test_a_game_of_three_moves_by_hand(ns: Namespace) -> None:
    """Player 0 moves, player 1, player 0 who wins; the fourth step resets. lambda is 0.5, nothing is discounted."""
    column = np.array([[0.0, 0.0], [0.5, -0.5], [0.5, -0.5], [9.0, 9.0], [0.0, 0.0]])
    rewards = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, -1.0], [0.0, 0.0]])
    ended, never = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.zeros((4, 2))
    advantages = ns.run(ppo.gae, rewards, column, ended, never, gamma=1.0, gae_lambda=0.5)
    # A passing row's is an ordinary step: 0.5 - 0 + 0.5 * (0.5 - 0.5 + 0.5 * (1 - 0.5)).
    assert_allclose(advantages[:3], [[0.625, -0.625], [0.25, -0.25], [0.5, -0.5]], rtol=1e-14)

    policy_mask = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]).ravel()
    value_mask = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]).ravel()
    old = np.zeros(8)
    log_probs = np.where(policy_mask == 1, np.log([1.1, 1, 1, 1, 1, 1, 1, 1]), 3.0)  # a passing row's ratio is e^3
    entropies = np.array([1.0, 50.0, 50.0, 2.0, 6.0, 50.0, 50.0, 50.0])
    returns = (advantages + column[:4]).ravel()

    def of_batch(xp: Any, *arrays: Any, norm_adv: bool) -> Any:
        log_probs, entropies, values, *old = arrays
        coefficients: dict[str, Any] = {"clip_coef": 0.2, "clip_vloss": False, "ent_coef": 0.1, "vf_coef": 0.5}
        batch = normalized(xp, ppo.Transitions(*old), norm_adv)
        return ppo.losses(xp, log_probs, entropies, values, batch, **coefficients)

    arrays = (log_probs, entropies, np.zeros(8), old, np.zeros(8), advantages.ravel(), returns, value_mask, policy_mask)
    plain = ns.run(of_batch, *arrays, norm_adv=False)
    assert_allclose(plain.policy_loss, -(1.1 * 0.625 - 0.25 + 0.5) / 3, rtol=1e-12)
    assert_allclose(plain.entropy, (1.0 + 2.0 + 6.0) / 3, rtol=1e-14)
    # The critic learns from all six rows: 0.625, 0.75 and 1 of either sign.
    assert_allclose(plain.value_loss, 0.5 * 2 * (0.625**2 + 0.75**2 + 1.0) / 6, rtol=1e-14)
    # Normalised by the three moves alone: their mean is 7/24, their variance 43/288.
    normed = [(a - 7 / 24) / np.sqrt(43 / 288) for a in (0.625, -0.25, 0.5)]
    levelled = ns.run(of_batch, *arrays, norm_adv=True)
    assert_allclose(levelled.policy_loss, -(1.1 * normed[0] + normed[1] + normed[2]) / 3, rtol=1e-6)


class Temptation(Probe):
    """One step: choice 0 would pay 10 and is never legal, 1 pays 1, and 2 nothing."""

    action_space: spaces.Space = spaces.Discrete(3)
    masks_actions = True
    taken = np.zeros(3, int)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.taken = np.zeros(3, int)
        return super().reset(seeds)._replace(action_mask=self._action_mask())

    def step(self, actions: np.ndarray) -> EnvStep:
        self.taken += np.bincount(actions, minlength=3)
        return super().step(actions)._replace(action_mask=self._action_mask())

    def reward(self, actions: np.ndarray) -> np.ndarray:
        return np.array([10.0, 1.0, 0.0])[actions]

    def _action_mask(self) -> np.ndarray:
        return np.tile([False, True, True], (self.num_envs, 1))


@pytest.mark.parametrize("framework", ACTING)
def test_an_illegal_action_does_not_tempt(framework: str) -> None:
    env = Temptation(8)
    spec = problem_for(env, 40, ["ppo.num_steps=16", "ppo.learning_rate=1e-2", "ppo.ent_coef=0.0"])
    arrays = after_iterations(framework, spec, spec.num_iterations)
    policy_outputs, _ = policy_outputs_and_values(spec.network, arrays, np.zeros((1, 1), np.float32))
    assert env.taken[0] == 0
    assert env.taken.sum() == 40 * 16 * 8
    assert policy_outputs[0][0, 1] - policy_outputs[0][0, 2] > 3.0
    assert np.isfinite(policy_outputs[0]).all()


class Nothing(Temptation):
    """In the third step environment 5 may do nothing at all."""

    def _action_mask(self) -> np.ndarray:
        action_mask = super()._action_mask()
        action_mask[5] = action_mask[5] & (self.taken.sum() < 24)
        return action_mask


def test_a_mask_that_forbids_everything_names_its_environment() -> None:
    runner = runner_for("torch_eager", problem_for(Nothing(8), 2, ["ppo.num_steps=16"]))
    with pytest.raises(RunError, match="environment 5 forbids every choice of an action"):
        runner.iterate(runner.init(1))
