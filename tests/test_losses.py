"""Losses against numbers worked out by hand; tests/test_transcription.py has whole iterations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import distributions, ppo
from tests.namespaces import Namespace

LN2 = math.log(2.0)
LN2PI = math.log(2.0 * math.pi)
WILD = 1e6  # what masked entries hold: one that leaks cannot be overlooked

# --- Losses by hand ---------------------------------------------------------------------------------------------------


def test_policy_loss_by_hand(ns: Namespace) -> None:
    ratio, advantages = [0.5, 1.1, 1.5, 0.5, 1.5, WILD], [1, 2, 1, -1, -1, -WILD]
    # -0.5 (falling below does not help), -2.2, -1.2 (clipped), 0.8 (clipped), 1.5: mean -1.6 / 5
    loss = ns.run(ppo.policy_loss, ratio, advantages, [0.2, 0.2, 0.2, 0.2, 0.2, 0], 0.2)
    assert_allclose(loss, -0.32, rtol=1e-14)


VALUE_ARGUMENTS = (
    [1, 3, 0, WILD],
    [0.9, 1, 2, -WILD],
    [2, 1, 0, 0],
    [1 / 3, 1 / 3, 1 / 3, 0],
)  # values, old, returns, weights


def test_value_loss_by_hand(ns: Namespace) -> None:
    # squared errors 1, 4, 0
    assert_allclose(ns.run(ppo.value_loss, *VALUE_ARGUMENTS, 0.5, False), 5 / 6, rtol=1e-14)


def test_clipped_value_loss_by_hand(ns: Namespace) -> None:
    # clipped values 1, 1.5, 1.5: squared errors max(1, 1), max(4, 1/4), max(0, 9/4)
    assert_allclose(ns.run(ppo.value_loss, *VALUE_ARGUMENTS, 0.5, True), 7.25 / 6, rtol=1e-14)


def test_kl_estimates_by_hand(ns: Namespace) -> None:
    # ratios 2, 2, 1/2, 1; a masked log-ratio of 50 would be a ratio of 5e21
    log_ratio, weights = [LN2, LN2, -LN2, 0, 50], [1 / 4, 1 / 4, 1 / 4, 1 / 4, 0]
    assert_allclose(ns.run(ppo.kl_k1, log_ratio, weights), -LN2 / 4, rtol=1e-14)
    # 2 * (2 - 1 - ln 2) + (1/2 - 1 + ln 2)
    assert_allclose(ns.run(ppo.kl_k3, log_ratio, weights), (1.5 - LN2) / 4, rtol=1e-14)


def test_clip_fraction_by_hand(ns: Namespace) -> None:
    # 0.75 and 1.25 lie on the border and are not clipped
    fraction = ns.run(ppo.clip_fraction, [0.5, 0.75, 1, 1.25, 1.5, WILD], [0.2, 0.2, 0.2, 0.2, 0.2, 0], 0.25)
    assert_allclose(fraction, 0.4, rtol=1e-15)


OPTIONS: dict[str, Any] = {"clip_coef": 0.2, "clip_vloss": True, "ent_coef": 0.01, "vf_coef": 0.5}


def normalized(xp: Any, batch: ppo.Transitions, norm_adv: bool = True) -> ppo.Transitions:
    """The transitions of a minibatch with `norm_adv`, from unnormalised advantages and masks in place of weights."""
    value, policy = ppo.normalize_masks(xp, xp.stack([batch.value_weight, batch.policy_weight]))
    advantages = batch.advantages
    if norm_adv:
        advantages = ppo.normalize_advantages(xp, advantages, policy)
    return batch._replace(advantages=advantages, value_weight=value, policy_weight=policy)


def test_the_critic_learns_where_steps_are_real_and_the_policy_where_actions_count(ns: Namespace) -> None:
    # The third transition is the critic's alone, the last one nobody's.
    old = ppo.Transitions([-1] * 4, [0, 0, 0, -WILD], [1, 3, WILD, -WILD], [1, 2, 3, 0], [1, 1, 1, 0], [1, 1, 0, 0])
    new = ([-1, -1 + math.log(1.5), 4, WILD], [0.5, 1.5, WILD, WILD], [0, 0, 0, WILD])

    def losses(xp: Any, log_probs: Any, entropies: Any, values: Any, batch: ppo.Transitions) -> ppo.Losses:
        return ppo.losses(xp, log_probs, entropies, values, normalized(xp, batch), **OPTIONS)

    result = ns.run(losses, *new, old)
    # advantages 1 and 3 are -1 and 1 once normalised, ratios 1 and 3/2: (1 - 1.2) / 2; errors 1, 4, 9
    assert_allclose(result.policy_loss, -0.1, rtol=1e-7)
    assert_allclose(result.value_loss, 14 / 6, rtol=1e-14)
    assert_allclose(result.entropy, 1.0, rtol=1e-14)
    assert_allclose(result.total, -0.1 - 0.01 * 1.0 + 0.5 * 14 / 6, rtol=1e-7)
    assert_allclose(result.old_approx_kl, -math.log(1.5) / 2, rtol=1e-14)
    assert_allclose(result.approx_kl, (0.5 - math.log(1.5)) / 2, rtol=1e-14)
    assert_allclose(result.clip_fraction, 0.5, rtol=1e-14)


# --- Minibatches that are entirely masked -----------------------------------------------------------------------------

families = pytest.mark.parametrize("family", ["categorical", "normal"])
DISTRIBUTIONS = {"categorical": distributions.CATEGORICAL, "normal": distributions.NORMAL}

Inputs = tuple[
    tuple[Any, ...], Any, ppo.Transitions
]  # policy_outputs and values (the network's outputs), actions, the rest with masks as weights


def minibatch(family: str) -> Inputs:
    """24 random transitions, 6 of them masked, on both sides of every clip."""
    rng = np.random.default_rng(4)
    mask = np.repeat([1.0, 0.0], [18, 6])
    if family == "categorical":
        policy_outputs: tuple[np.ndarray, ...] = (rng.normal(size=(24, 3)),)
        actions: np.ndarray = rng.integers(0, 3, 24)
    else:
        policy_outputs = (rng.normal(size=(24, 2)), rng.normal(size=2))
        actions = policy_outputs[0] + np.exp(policy_outputs[1]) * rng.normal(size=(24, 2))
    log_probs = DISTRIBUTIONS[family].log_prob(np, policy_outputs, actions) + 0.3 * rng.normal(size=24)
    old_values, advantages, returns = rng.normal(size=(3, 24))
    values = old_values + 0.3 * rng.normal(size=24)
    return (*policy_outputs, values), actions, ppo.Transitions(log_probs, old_values, advantages, returns, mask, mask)


def all_losses(xp: Any, outputs: Any, actions: Any, batch: ppo.Transitions, family: str) -> ppo.Losses:
    *policy_outputs, values = outputs
    policy = DISTRIBUTIONS[family]
    log_probs, entropies = (
        policy.log_prob(xp, tuple(policy_outputs), actions),
        policy.entropy(xp, tuple(policy_outputs)),
    )
    return ppo.losses(xp, log_probs, entropies, values, normalized(xp, batch), **OPTIONS)


@families
def test_losses_of_an_entirely_masked_minibatch_are_0(ns: Namespace, family: str) -> None:
    outputs, actions, batch = minibatch(family)
    batch = batch._replace(value_weight=np.zeros(24), policy_weight=np.zeros(24))
    assert_array_equal(ns.run(all_losses, outputs, actions, batch, family=family), np.zeros(7))


def test_global_norm_by_hand(ns: Namespace) -> None:
    gradients = (np.array([[1.0, 2.0], [2.0, 0.0]]), np.array([4.0]), np.array(12.0))
    assert ns.run(ppo.global_norm, gradients) == 13.0  # 1 + 4 + 4 + 16 + 144 = 169


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip_scale_is_exactly_1_up_to_the_limit(ns: Namespace, dtype: type[np.floating]) -> None:
    norms = np.array([0.0, 1e-30, 0.1, 0.3, 0.499999, 0.5], dtype)
    assert_array_equal(ns.run(ppo.clip_scale, norms, 0.5), np.ones(6))


def test_clip_scale_reaches_the_limit_exactly_above_it(ns: Namespace) -> None:
    norms = np.array([0.75, 2.0, 5.0, 1e6])
    scales = ns.run(ppo.clip_scale, norms, 0.5)
    assert_array_equal(scales, [2 / 3, 0.25, 0.1, 5e-7])  # a denominator of norm + 1e-6 is off by 1e-6 at the first
    assert_allclose(norms * scales, 0.5, rtol=1e-15)


def torch_gradients(inputs: Inputs, family: str) -> list[np.ndarray]:
    outputs = [torch.tensor(x, requires_grad=True) for x in inputs[0]]
    batch = ppo.Transitions(*(torch.tensor(x) for x in inputs[2]))
    total = all_losses(torch, outputs, torch.tensor(inputs[1]), batch, family).total
    return [gradient.numpy() for gradient in torch.autograd.grad(total, outputs)]


def jax_gradients(inputs: Inputs, family: str) -> list[np.ndarray]:
    def total(outputs: Any, actions: Any, batch: Any) -> Any:
        return all_losses(jnp, outputs, actions, batch, family).total

    with jax.enable_x64(True):
        return [np.asarray(gradient) for gradient in jax.jit(jax.grad(total))(*inputs)]


@pytest.mark.parametrize("gradients", [torch_gradients, jax_gradients])
@families
def test_gradients_of_an_entirely_masked_minibatch_are_0(
    gradients: Callable[..., list[np.ndarray]], family: str
) -> None:
    outputs, actions, batch = minibatch(family)
    inputs = outputs, actions, batch._replace(value_weight=np.zeros(24), policy_weight=np.zeros(24))
    for gradient in gradients(inputs, family):
        assert_array_equal(gradient, np.zeros_like(gradient))
