"""The known values and policies of the probe environments are learnt.

One framework learns all of them, and every framework at least one. That frameworks compute the same is shown elsewhere:
test_transcription.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.probes import (
    ActionOfObservation,
    Discounting,
    Endless,
    Probe,
    Target,
)
from tests.runners import ACTING, policy_outputs_and_values, problem_for, train

pytestmark = pytest.mark.slow

GAMMA = 0.9
LEARN_FAST = [
    f"ppo.gamma={GAMMA}",
    "ppo.num_steps=64",
    "ppo.learning_rate=5e-3",
    "ppo.ent_coef=0.0",
    "ppo.clip_vloss=false",
    "ppo.vf_coef=1.0",
    "ppo.max_grad_norm=10.0",
]


def learn(
    probe: type[Probe], states: list[float], *overrides: str, iterations: int = 60, framework: str = "torch_eager"
) -> tuple[np.ndarray, np.ndarray]:
    """Head `[S, A]` and values `[S]` at `states` after training."""
    spec = problem_for(probe(num_envs=8), iterations, [*LEARN_FAST, *overrides])
    arrays = train(framework, spec)
    policy_outputs, values = policy_outputs_and_values(spec.network, arrays, np.array(states, np.float32)[:, None])
    return policy_outputs[0], values


def probabilities(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def test_rewards_to_come_are_discounted() -> None:
    _, values = learn(Discounting, [0.0, 1.0])
    np.testing.assert_allclose(values, [GAMMA, 1.0], atol=0.03)


@pytest.mark.parametrize("framework", ACTING)
def test_the_better_action_depends_on_the_observation(framework: str) -> None:
    logits, values = learn(ActionOfObservation, [-1.0, 1.0], framework=framework)
    assert probabilities(logits)[0, 0] > 0.95
    assert probabilities(logits)[1, 1] > 0.95
    np.testing.assert_allclose(values, [1.0, 1.0], atol=0.15)


def test_a_continuous_target_is_met() -> None:
    mean, _ = learn(Target, [0.0], "ppo.learning_rate=3e-3", iterations=100)
    np.testing.assert_allclose(mean, [[0.5, 0.5]], atol=0.05)


def test_an_endless_task_has_its_infinite_value_through_the_bootstrap() -> None:
    _, values = learn(Endless, [0.0], "ppo.gae_lambda=0.5", iterations=100)
    np.testing.assert_allclose(values, [1.0 / (1.0 - GAMMA)], rtol=0.03)
