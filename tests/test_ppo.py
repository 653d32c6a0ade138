"""PPO's equations against numbers worked out by hand, SciPy, torch.distributions and finite differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench import ppo
from tests.namespaces import NAMESPACES, Namespace

LN2 = math.log(2.0)
LN2PI = math.log(2.0 * math.pi)

WILD = 1e6  # what masked entries hold: one that leaks cannot be overlooked


def column(*values: float) -> np.ndarray:
    """A `[T, 1]` array: one environment."""
    return np.array(values, np.float64)[:, None]


# --- Advantages -------------------------------------------------------------------------------------------------------

# With gamma = lambda = 1/2 the decay is 1/4, and without any end
#   delta_0 = 1 + 8/2 - 4 = 1     delta_1 = 2 + 2/2 - 8 = -5     delta_2 = 3 + 6/2 - 2 = 4
#   A_2 = 4                       A_1 = -5 + 4/4 = -4            A_0 = 1 - 4/4 = 0
REWARDS = column(1, 2, 3)
VALUES = column(4, 8, 2, 6)
NEVER = column(0, 0, 0)
SECOND = column(0, 1, 0)
LAST = column(0, 0, 1)


@pytest.mark.parametrize(
    ("terminated", "truncated", "bootstrap", "expected"),
    [
        pytest.param(NEVER, NEVER, True, [0, -4, 4], id="no end"),
        # delta_1 = 2 - 8 = -6 and A_1 stops there; A_0 = 1 - 6/4
        pytest.param(SECOND, NEVER, True, [-0.5, -6, 4], id="terminated"),
        # delta_1 keeps values[2]; A_1 = -5, A_0 = 1 - 5/4
        pytest.param(NEVER, SECOND, True, [-0.25, -5, 4], id="truncated with bootstrap"),
        pytest.param(NEVER, SECOND, False, [-0.5, -6, 4], id="truncated without bootstrap"),
        pytest.param(SECOND, SECOND, True, [-0.5, -6, 4], id="termination wins over truncation"),
        # delta_2 = 3 - 2 = 1; A_1 = -5 + 1/4, A_0 = 1 - 4.75/4
        pytest.param(LAST, NEVER, True, [-0.1875, -4.75, 1], id="terminated at the last step"),
        pytest.param(NEVER, LAST, True, [0, -4, 4], id="truncated at the last step with bootstrap"),
        pytest.param(NEVER, LAST, False, [-0.1875, -4.75, 1], id="truncated at the last step without bootstrap"),
    ],
)
def test_gae_by_hand(
    ns: Namespace, terminated: np.ndarray, truncated: np.ndarray, bootstrap: bool, expected: list[float]
) -> None:
    options = {"gamma": 0.5, "gae_lambda": 0.5, "bootstrap_truncated": bootstrap}
    advantages = ns.run(ppo.gae, REWARDS, VALUES, terminated, truncated, **options)
    assert_array_equal(advantages, column(*expected))


def test_gae_bootstraps_truncations_by_default(ns: Namespace) -> None:
    advantages = ns.run(ppo.gae, REWARDS, VALUES, NEVER, SECOND, gamma=0.5, gae_lambda=0.5)
    assert_array_equal(advantages, column(-0.25, -5, 4))


def test_gae_at_lambda_0_is_the_td_error(ns: Namespace) -> None:
    advantages = ns.run(ppo.gae, REWARDS, VALUES, NEVER, NEVER, gamma=0.5, gae_lambda=0.0)
    assert_array_equal(advantages, column(1, -5, 4))


def test_gae_at_lambda_1_is_the_discounted_return_less_the_value(ns: Namespace) -> None:
    # returns: 3 + 6/2 = 6, 2 + 6/2 = 5, 1 + 5/2 = 3.5
    advantages = ns.run(ppo.gae, REWARDS, VALUES, NEVER, NEVER, gamma=0.5, gae_lambda=1.0)
    assert_array_equal(advantages, column(3.5 - 4, 5 - 8, 6 - 2))


def test_gae_keeps_environments_apart(ns: Namespace) -> None:
    rewards, values = np.tile(REWARDS, 2), np.tile(VALUES, 2)
    terminated = np.hstack([NEVER, SECOND])
    advantages = ns.run(ppo.gae, rewards, values, terminated, 0.0 * terminated, gamma=0.5, gae_lambda=0.5)
    assert_array_equal(advantages, [[0, -0.5], [-4, -6], [4, 4]])


def test_gae_can_be_scanned_by_jax() -> None:
    def scan(xp: Any, deltas: Any, decays: Any) -> Any:
        def body(advantage: Any, row: Any) -> tuple[Any, Any]:
            advantage = ppo.gae_step(advantage, *row)
            return advantage, advantage

        return jax.lax.scan(body, xp.zeros_like(deltas[0]), (deltas, decays), reverse=True)[1]

    options = {"gamma": 0.5, "gae_lambda": 0.5, "scan": scan}
    advantages = NAMESPACES["jax"].run(ppo.gae, REWARDS, VALUES, SECOND, NEVER, **options)
    assert_array_equal(advantages, column(-0.5, -6, 4))


def test_reset_mask_is_0_on_the_step_after_a_done_one(ns: Namespace) -> None:
    mask = ns.run(ppo.reset_mask, [[0, 1], [1, 0], [0, 1]], [1, 0])
    assert_array_equal(mask, [[0, 1], [1, 0], [0, 1]])


def test_reset_mask_carries_the_last_flag_into_the_next_iteration(ns: Namespace) -> None:
    assert_array_equal(ns.run(ppo.reset_mask, column(0, 0, 0, 1, 0, 0), [0]), column(1, 1, 1, 1, 0, 1))
    assert_array_equal(ns.run(ppo.reset_mask, column(0, 0, 0, 1), [0]), column(1, 1, 1, 1))
    assert_array_equal(ns.run(ppo.reset_mask, column(0, 0), [1]), column(0, 1))


def endless(ns: Namespace, bootstrap_truncated: bool) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and mask `[10]` of reward 1 for ever, cut every 4 steps: gamma = 0.9, lambda = 0.5, V = 1/(1 - gamma).

    The fifth step of each period is the reset, with a reward of 0 that the endless environment never gave.
    """
    reward, truncated = column(*[1, 1, 1, 1, 0] * 2), column(*[0, 0, 0, 1, 0] * 2)
    mask = ns.run(ppo.reset_mask, truncated, [0])
    options = {"gamma": 0.9, "gae_lambda": 0.5, "bootstrap_truncated": bootstrap_truncated}
    advantages = ns.run(ppo.gae, reward, np.full((11, 1), 10.0), 0.0 * truncated, truncated, **options)
    return advantages[:, 0], mask[:, 0]


def test_endless_environment_is_a_fixed_point_with_the_bootstrap(ns: Namespace) -> None:
    advantages, mask = endless(ns, bootstrap_truncated=True)
    assert_array_equal(mask, [1, 1, 1, 1, 0] * 2)
    assert_allclose(advantages[mask == 1], 0.0, atol=1e-13)
    # The reset step earned nothing: 0 + 0.9 * 10 - 10. The mask is what keeps it out.
    assert_allclose(advantages[mask == 0], -1.0)


def test_endless_environment_is_no_fixed_point_without_the_bootstrap(ns: Namespace) -> None:
    advantages, mask = endless(ns, bootstrap_truncated=False)
    # The cut step misses 0.9 * 10, and each step before it 0.45 of that of the next.
    assert_allclose(advantages[mask == 1], [-9 * 0.45**3, -9 * 0.45**2, -9 * 0.45, -9] * 2)


def random_episodes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rewards `[8, 3]`, values `[9, 3]`, done `[8, 3]` and the mask that follows, with no two dones in a row."""
    rng = np.random.default_rng(1)
    done = np.zeros((8, 3))
    done[[2, 5, 0, 4, 7], [0, 0, 1, 1, 2]] = 1.0
    mask = np.ones((8, 3))
    mask[[3, 6, 1, 5], [0, 0, 1, 1]] = 0.0
    return rng.normal(size=(8, 3)), rng.normal(size=(9, 3)), done, mask


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_rewards_of_masked_steps_reach_no_other_step(ns: Namespace, kind: str) -> None:
    rewards, values, done, mask = random_episodes()
    flags = (done, 0.0 * done) if kind == "terminated" else (0.0 * done, done)
    wild_rewards = np.where(mask == 1, rewards, WILD)
    advantages = ns.run(ppo.gae, rewards, values, *flags, gamma=0.99, gae_lambda=0.95)
    wild = ns.run(ppo.gae, wild_rewards, values, *flags, gamma=0.99, gae_lambda=0.95)
    assert_array_equal(wild[mask == 1], advantages[mask == 1])
    assert np.all(wild[mask == 0] > 0.9 * WILD)


@pytest.mark.parametrize("kind", ["terminated", "truncated without bootstrap"])
def test_values_at_masked_steps_reach_no_other_step_unless_bootstrapped(ns: Namespace, kind: str) -> None:
    rewards, values, done, mask = random_episodes()
    flags = (done, 0.0 * done) if kind == "terminated" else (0.0 * done, done)
    options = {"gamma": 0.99, "gae_lambda": 0.95, "bootstrap_truncated": kind == "terminated"}
    wild_values = values.copy()
    wild_values[:-1][mask == 0] = WILD
    advantages = ns.run(ppo.gae, rewards, values, *flags, **options)
    wild = ns.run(ppo.gae, rewards, wild_values, *flags, **options)
    assert_array_equal(wild[mask == 1], advantages[mask == 1])
    assert np.all(wild[mask == 0] < -0.9 * WILD)


# --- Masked statistics ------------------------------------------------------------------------------------------------


def test_masked_mean_and_variance_by_hand(ns: Namespace) -> None:
    x, mask = [1, WILD, 2, 3], [1, 0, 1, 1]
    assert_allclose(ns.run(ppo.masked_mean, x, mask), 2.0, rtol=1e-15)
    assert_allclose(ns.run(ppo.masked_variance, x, mask), 2 / 3, rtol=1e-15)  # (1 + 0 + 1) / 3, not / 2


def test_normalized_advantages_by_hand(ns: Namespace) -> None:
    normalized = ns.run(ppo.normalize_advantages, [1, 2, WILD, 3], [1, 1, 0, 1])
    scale = 1 / (math.sqrt(2 / 3) + 1e-8)
    assert_allclose(normalized[[0, 1, 3]], [-scale, 0, scale], rtol=1e-15)


def test_constant_advantages_normalize_to_0(ns: Namespace) -> None:
    assert_array_equal(ns.run(ppo.normalize_advantages, [3, 3, 3], [1, 1, 1]), [0, 0, 0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, 2, 3, 4], 1.0, id="perfect critic"),
        pytest.param([6, 7, 8, 9], 1.0, id="a constant offset is not counted"),
        pytest.param([5, 5, 5, 5], 0.0, id="constant critic"),
        # residuals 0, 0, 0, 2: variance 1 - 1/4; returns: variance 5/4
        pytest.param([1, 2, 3, 2], 0.4, id="one miss"),
        # residuals are twice the returns: variance ratio 4
        pytest.param([-1, -2, -3, -4], -3.0, id="worse than a constant"),
    ],
)
def test_explained_variance_by_hand(ns: Namespace, values: list[float], expected: float) -> None:
    explained = ns.run(ppo.explained_variance, [*values, -WILD], [1, 2, 3, 4, WILD], [1, 1, 1, 1, 0])
    assert_allclose(explained, expected, rtol=1e-14, atol=1e-14)


# --- Policies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
def test_categorical_by_hand(ns: Namespace, shift: float) -> None:
    # probabilities 1/2, 1/4, 1/4: entropy 1/2 ln 2 + 2 * 1/4 ln 4
    head = (np.array([[-LN2, -2 * LN2, -2 * LN2]] * 3) + shift,)
    log_probs = ns.run(ppo.categorical_log_prob, head, np.array([0, 1, 2]))
    assert_allclose(log_probs, [-LN2, -2 * LN2, -2 * LN2], rtol=1e-13)
    assert_allclose(ns.run(ppo.categorical_entropy, head), [1.5 * LN2] * 3, rtol=1e-13)


def test_categorical_stays_finite_at_extreme_logits(ns: Namespace) -> None:
    head = (np.array([[1000.0, 0.0], [1000.0, 0.0], [-1000.0, 1000.0]]),)
    assert_array_equal(ns.run(ppo.categorical_log_prob, head, np.array([0, 1, 0])), [0, -1000, -2000])
    assert_array_equal(ns.run(ppo.categorical_entropy, head), [0, 0, 0])


def test_categorical_matches_scipy(ns: Namespace) -> None:
    rng = np.random.default_rng(2)
    logits, actions = rng.normal(size=(20, 5)), rng.integers(0, 5, 20)
    one_draw = [scipy.stats.multinomial(1, p) for p in np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)]
    expected = [draw.logpmf(np.eye(5)[action]) for draw, action in zip(one_draw, actions, strict=True)]
    assert_allclose(ns.run(ppo.categorical_log_prob, (logits,), actions), expected, rtol=1e-12)
    assert_allclose(ns.run(ppo.categorical_entropy, (logits,)), [draw.entropy() for draw in one_draw], rtol=1e-12)


def test_categorical_sample_is_the_argmax_of_logits_and_noise(ns: Namespace) -> None:
    logits, noise = np.array([[0.0, 1.0, 0.5]] * 2), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.6]])
    assert_array_equal(ns.run(ppo.categorical_sample, (logits,), noise), [1, 2])
    assert_array_equal(ns.run(ppo.categorical_mode, (logits,)), [1, 1])


def test_choices_side_by_side_by_hand(ns: Namespace) -> None:
    # probabilities (1/2, 1/4, 1/4) and (1/5, 4/5)
    head = (np.log([[0.5, 0.25, 0.25, 0.2, 0.8]] * 3),)
    policy = ppo.multi_categorical((3, 2))
    actions = np.array([[0, 0], [1, 1], [2, 0]])
    assert_allclose(ns.run(policy.log_prob, head, actions), np.log([0.1, 0.2, 0.05]), rtol=1e-13)
    entropy = 1.5 * LN2 - 0.2 * math.log(0.2) - 0.8 * math.log(0.8)
    assert_allclose(ns.run(policy.entropy, head), [entropy] * 3, rtol=1e-13)
    assert_array_equal(ns.run(policy.mode, head), [[0, 1]] * 3)


def test_choices_side_by_side_take_the_noise_of_their_own_lanes(ns: Namespace) -> None:
    logits = np.array([[0.0, 1.0, 0.5, 0.0, 0.1]] * 2)
    noise = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.6, 9.0, 0.0]])
    policy = ppo.multi_categorical((3, 2))
    assert_array_equal(ns.run(policy.sample, (logits,), noise), [[1, 1], [2, 0]])


def test_normal_by_hand(ns: Namespace) -> None:
    # standard deviations 1 and 2, both actions one of them off: 2 * (-1/2 - 1/2 ln 2 pi) - ln 2
    head = (np.array([[0.0, 1.0]]), np.array([0.0, LN2]))
    assert_allclose(ns.run(ppo.normal_log_prob, head, np.array([[1.0, 3.0]])), [-1 - LN2PI - LN2], rtol=1e-14)
    # 2 * 1/2 ln(2 pi e) + ln 2
    assert_allclose(ns.run(ppo.normal_entropy, head), [1 + LN2PI + LN2], rtol=1e-14)


def test_normal_matches_scipy(ns: Namespace) -> None:
    rng = np.random.default_rng(3)
    mean, log_std, actions = rng.normal(size=(20, 4)), rng.normal(size=4), rng.normal(size=(20, 4))
    joint = [scipy.stats.multivariate_normal(m, np.diag(np.exp(2 * log_std))) for m in mean]
    expected = [density.logpdf(action) for density, action in zip(joint, actions, strict=True)]
    assert_allclose(ns.run(ppo.normal_log_prob, (mean, log_std), actions), expected, rtol=1e-12)
    assert_allclose(ns.run(ppo.normal_entropy, (mean, log_std)), [density.entropy() for density in joint], rtol=1e-12)


def test_normal_sample_scales_and_shifts_the_noise(ns: Namespace) -> None:
    head = (np.array([[1.0, -1.0]]), np.array([0.0, LN2]))
    assert_allclose(ns.run(ppo.normal_sample, head, np.array([[0.5, 3.0]])), [[1.5, 5.0]], rtol=1e-15)
    assert_array_equal(ns.run(ppo.normal_mode, head), [[1.0, -1.0]])


# --- Losses by hand ---------------------------------------------------------------------------------------------------


def test_policy_loss_by_hand(ns: Namespace) -> None:
    ratio, advantages = [0.5, 1.1, 1.5, 0.5, 1.5, WILD], [1, 2, 1, -1, -1, -WILD]
    # -0.5 (falling below does not help), -2.2, -1.2 (clipped), 0.8 (clipped), 1.5: mean -1.6 / 5
    loss = ns.run(ppo.policy_loss, ratio, advantages, [1, 1, 1, 1, 1, 0], 0.2)
    assert_allclose(loss, -0.32, rtol=1e-14)


VALUE_ARGUMENTS = ([1, 3, 0, WILD], [0.9, 1, 2, -WILD], [2, 1, 0, 0], [1, 1, 1, 0])  # values, old, returns, mask


def test_value_loss_by_hand(ns: Namespace) -> None:
    # squared errors 1, 4, 0
    assert_allclose(ns.run(ppo.value_loss, *VALUE_ARGUMENTS, 0.5, False), 5 / 6, rtol=1e-14)


def test_clipped_value_loss_by_hand(ns: Namespace) -> None:
    # clipped values 1, 1.5, 1.5: squared errors max(1, 1), max(4, 1/4), max(0, 9/4)
    assert_allclose(ns.run(ppo.value_loss, *VALUE_ARGUMENTS, 0.5, True), 7.25 / 6, rtol=1e-14)


def test_kl_estimates_by_hand(ns: Namespace) -> None:
    # ratios 2, 2, 1/2, 1; a masked log-ratio of 50 would be a ratio of 5e21
    log_ratio, mask = [LN2, LN2, -LN2, 0, 50], [1, 1, 1, 1, 0]
    assert_allclose(ns.run(ppo.kl_k1, log_ratio, mask), -LN2 / 4, rtol=1e-14)
    # 2 * (2 - 1 - ln 2) + (1/2 - 1 + ln 2)
    assert_allclose(ns.run(ppo.kl_k3, log_ratio, mask), (1.5 - LN2) / 4, rtol=1e-14)


def test_kl_estimates_agree_with_the_exact_divergence() -> None:
    # KL(N(0, 1) || N(0.1, 1)) = 0.1^2 / 2, from draws of the old policy
    draws = scipy.stats.norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    log_ratio = 0.1 * draws - 0.005
    assert_allclose(ppo.kl_k1(np, log_ratio, np.ones(10_000)), 0.005, rtol=1e-3)
    assert_allclose(ppo.kl_k3(np, log_ratio, np.ones(10_000)), 0.005, rtol=1e-2)


def test_clip_fraction_by_hand(ns: Namespace) -> None:
    # 0.75 and 1.25 lie on the border and are not clipped
    fraction = ns.run(ppo.clip_fraction, [0.5, 0.75, 1, 1.25, 1.5, WILD], [1, 1, 1, 1, 1, 0], 0.25)
    assert_allclose(fraction, 0.4, rtol=1e-15)


OPTIONS: dict[str, Any] = {"clip_coef": 0.2, "clip_vloss": True, "norm_adv": True, "ent_coef": 0.01, "vf_coef": 0.5}


def test_total_loss_weighs_its_parts(ns: Namespace) -> None:
    # ratios 1 and 3/2, advantages 1 and 2 unnormalised: -(1 + 1.2 * 2) / 2; errors 1 and 4: (1 + 4) / 4
    batch = ppo.Minibatch(log_probs=[-1, -1], values=[0, 0], advantages=[1, 2], returns=[1, 2], mask=[1, 1])
    log_probs, entropies, values = [-1, -1 + math.log(1.5)], [0.5, 1.5], [0, 0]
    result = ns.run(ppo.losses, log_probs, entropies, values, batch, **OPTIONS | {"norm_adv": False, "ent_coef": 0.1})
    assert_allclose(result.policy_loss, -1.7, rtol=1e-14)
    assert_allclose(result.value_loss, 1.25, rtol=1e-14)
    assert_allclose(result.entropy, 1.0, rtol=1e-14)
    assert_allclose(result.total, -1.7 - 0.1 * 1.0 + 0.5 * 1.25, rtol=1e-14)
    assert_allclose(result.old_approx_kl, -math.log(1.5) / 2, rtol=1e-14)
    assert_allclose(result.approx_kl, (0.5 - math.log(1.5)) / 2, rtol=1e-14)
    assert_allclose(result.clip_fraction, 0.5, rtol=1e-14)


# --- Losses on random minibatches -------------------------------------------------------------------------------------

COMBINATIONS = {
    f"clip_vloss={clip_vloss},norm_adv={norm_adv}": {"clip_vloss": clip_vloss, "norm_adv": norm_adv}
    for clip_vloss, norm_adv in itertools.product([False, True], repeat=2)
}
combinations = pytest.mark.parametrize("switches", COMBINATIONS.values(), ids=COMBINATIONS)
families = pytest.mark.parametrize("family", ["categorical", "normal"])
DISTRIBUTIONS = {"categorical": ppo.CATEGORICAL, "normal": ppo.NORMAL}

Inputs = tuple[tuple[Any, ...], Any, ppo.Minibatch]  # head and values (the network's outputs), actions, the rest


def minibatch(family: str) -> Inputs:
    """24 random transitions, 6 of them masked, on both sides of every clip."""
    rng = np.random.default_rng(4)
    mask = np.repeat([1.0, 0.0], [18, 6])
    if family == "categorical":
        head: tuple[np.ndarray, ...] = (rng.normal(size=(24, 3)),)
        actions: np.ndarray = rng.integers(0, 3, 24)
    else:
        head = (rng.normal(size=(24, 2)), rng.normal(size=2))
        actions = head[0] + np.exp(head[1]) * rng.normal(size=(24, 2))
    log_probs = DISTRIBUTIONS[family].log_prob(np, head, actions) + 0.3 * rng.normal(size=24)
    old_values, advantages, returns = rng.normal(size=(3, 24))
    values = old_values + 0.3 * rng.normal(size=24)
    return (*head, values), actions, ppo.Minibatch(log_probs, old_values, advantages, returns, mask)


def all_losses(xp: Any, outputs: Any, actions: Any, batch: ppo.Minibatch, family: str, **switches: Any) -> ppo.Losses:
    *head, values = outputs
    policy = DISTRIBUTIONS[family]
    log_probs, entropies = policy.log_prob(xp, tuple(head), actions), policy.entropy(xp, tuple(head))
    return ppo.losses(xp, log_probs, entropies, values, batch, **OPTIONS | switches)


def transcription(inputs: Inputs, family: str, clip_vloss: bool, norm_adv: bool) -> ppo.Losses:
    """The loss as the paper writes it, with torch.distributions, on the unmasked transitions alone."""
    keep = torch.tensor(inputs[2].mask == 1)
    *head, newvalue, actions = (torch.tensor(x) for x in (*inputs[0], inputs[1]))
    old_logprob, old_value, adv, ret, _ = (torch.tensor(x)[keep] for x in inputs[2])
    policy: torch.distributions.Distribution
    if family == "categorical":
        policy = torch.distributions.Categorical(logits=head[0][keep])
    else:
        policy = torch.distributions.Independent(torch.distributions.Normal(head[0][keep], head[1].exp()), 1)
    logprob, entropy, newvalue = policy.log_prob(actions[keep]), policy.entropy(), newvalue[keep]
    ratio = torch.exp(logprob - old_logprob)
    if norm_adv:
        adv = (adv - adv.mean()) / (adv.std(correction=0) + 1e-8)
    surrogate = torch.minimum(ratio * adv, torch.clamp(ratio, 0.8, 1.2) * adv).mean()
    v_loss = (newvalue - ret) ** 2
    if clip_vloss:
        v_loss = torch.maximum(v_loss, (torch.clamp(newvalue, old_value - 0.2, old_value + 0.2) - ret) ** 2)
    return ppo.Losses(
        total=-(surrogate - 0.5 * 0.5 * v_loss.mean() + 0.01 * entropy.mean()),
        policy_loss=-surrogate,
        value_loss=v_loss.mean() / 2,
        entropy=entropy.mean(),
        old_approx_kl=(old_logprob - logprob).mean(),
        approx_kl=((ratio - 1) - ratio.log()).mean(),
        clip_fraction=((ratio < 0.8) | (ratio > 1.2)).double().mean(),
    )


@families
def test_minibatch_reaches_both_sides_of_every_clip(family: str) -> None:
    outputs, actions, batch = minibatch(family)
    keep = batch.mask == 1
    ratio = np.exp(DISTRIBUTIONS[family].log_prob(np, outputs[:-1], actions) - batch.log_probs)[keep]
    for moved in (ratio - 1.0, (outputs[-1] - batch.values)[keep]):
        assert np.any(moved < -0.2)
        assert np.any(np.abs(moved) < 0.2)
        assert np.any(moved > 0.2)


@families
@combinations
def test_losses_match_an_independent_transcription(ns: Namespace, family: str, switches: dict[str, bool]) -> None:
    inputs = minibatch(family)
    result = ns.run(all_losses, *inputs, family=family, **switches)
    assert_allclose(result, transcription(inputs, family, **switches), rtol=0, atol=1e-12)


@families
@combinations
def test_namespaces_agree_on_losses(family: str, switches: dict[str, bool]) -> None:
    inputs = minibatch(family)
    with jax.enable_x64(True):
        by_numpy, by_torch, by_jax = (
            ns.run(all_losses, *inputs, family=family, **switches) for ns in NAMESPACES.values()
        )
    assert_allclose(by_torch, by_numpy, rtol=0, atol=1e-12)
    assert_allclose(by_jax, by_numpy, rtol=0, atol=1e-12)


def finite_differences(function: Callable[[list[np.ndarray]], Any], at: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Central differences of a scalar function of several arrays."""
    width = 1e-5
    points = [x.copy() for x in at]
    gradients = [np.zeros_like(x) for x in at]
    for point, gradient in zip(points, gradients, strict=True):
        for index in np.ndindex(point.shape):
            centre = point[index]
            point[index] = centre + width
            above = function(points)
            point[index] = centre - width
            gradient[index] = (above - function(points)) / (2 * width)
            point[index] = centre
    return gradients


def torch_gradients(inputs: Inputs, family: str, **switches: Any) -> list[np.ndarray]:
    outputs = [torch.tensor(x, requires_grad=True) for x in inputs[0]]
    batch = ppo.Minibatch(*(torch.tensor(x) for x in inputs[2]))
    total = all_losses(torch, outputs, torch.tensor(inputs[1]), batch, family, **switches).total
    return [gradient.numpy() for gradient in torch.autograd.grad(total, outputs)]


def jax_gradients(inputs: Inputs, family: str, **switches: Any) -> list[np.ndarray]:
    def total(outputs: Any, actions: Any, batch: Any) -> Any:
        return all_losses(jnp, outputs, actions, batch, family, **switches).total

    with jax.enable_x64(True):
        return [np.asarray(gradient) for gradient in jax.jit(jax.grad(total))(*inputs)]


@pytest.mark.parametrize("gradients", [torch_gradients, jax_gradients])
@families
@combinations
def test_gradients_match_finite_differences(
    gradients: Callable[..., list[np.ndarray]], family: str, switches: dict[str, bool]
) -> None:
    outputs, actions, batch = inputs = minibatch(family)

    def total(at: list[np.ndarray]) -> Any:
        return all_losses(np, at, actions, batch, family, **switches).total

    for actual, expected in zip(gradients(inputs, family, **switches), finite_differences(total, outputs), strict=True):
        assert np.count_nonzero(expected) > 0
        assert_allclose(actual, expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("gradients", [torch_gradients, jax_gradients])
@families
def test_gradients_at_the_old_network_are_the_unclipped_ones(
    gradients: Callable[..., list[np.ndarray]], family: str
) -> None:
    # The first minibatch of every iteration: both sides of each maximum are equal, and so are their slopes.
    outputs, actions, batch = minibatch(family)
    log_probs = DISTRIBUTIONS[family].log_prob(np, outputs[:-1], actions)
    batch = batch._replace(log_probs=log_probs, values=outputs[-1].copy())
    actual = gradients((outputs, actions, batch), family, clip_vloss=True, norm_adv=False)

    def unclipped(at: list[np.ndarray]) -> Any:
        return all_losses(np, at, actions, batch, family, clip_coef=1e3, clip_vloss=False, norm_adv=False).total

    for gradient, expected in zip(actual, finite_differences(unclipped, outputs), strict=True):
        assert_allclose(gradient, expected, rtol=1e-6, atol=1e-10)
    # vf_coef * (value - return) over the 18 unmasked transitions
    assert_allclose(actual[-1][:18], 0.5 * (outputs[-1] - batch.returns)[:18] / 18, rtol=1e-12)


@pytest.mark.parametrize("gradients", [torch_gradients, jax_gradients])
@families
def test_clipped_and_masked_transitions_have_no_gradient(
    gradients: Callable[..., list[np.ndarray]], family: str
) -> None:
    outputs, actions, batch = minibatch(family)
    # Transition 0 has moved far in the direction its advantage asked for, and its value from far onto its return.
    batch.log_probs[0] -= 10.0
    batch.advantages[0] = 10.0
    batch.values[0], batch.returns[0] = outputs[-1][0] - 10.0, outputs[-1][0]
    result = gradients((outputs, actions, batch), family, clip_vloss=True, norm_adv=False, ent_coef=0.0)
    for gradient in (result[0], result[-1]):
        assert_array_equal(gradient[0], 0.0 * gradient[0])
        assert_array_equal(gradient[18:], 0.0 * gradient[18:])
        assert np.count_nonzero(gradient[1:18]) > 0


@families
@combinations
def test_masked_transitions_change_no_loss(ns: Namespace, family: str, switches: dict[str, bool]) -> None:
    outputs, actions, batch = minibatch(family)
    result = ns.run(all_losses, outputs, actions, batch, family=family, **switches)
    masked = batch.mask == 0
    outputs[-1][masked] = WILD
    for x, wild in zip(batch[:-1], (-WILD, -WILD, WILD, -WILD), strict=True):
        x[masked] = wild
    assert_array_equal(ns.run(all_losses, outputs, actions, batch, family=family, **switches), result)


@families
@combinations
def test_losses_of_an_entirely_masked_minibatch_are_0(ns: Namespace, family: str, switches: dict[str, bool]) -> None:
    outputs, actions, batch = minibatch(family)
    batch = batch._replace(mask=np.zeros(24))
    assert_array_equal(ns.run(all_losses, outputs, actions, batch, family=family, **switches), np.zeros(7))


@pytest.mark.parametrize("gradients", [torch_gradients, jax_gradients])
@families
def test_gradients_of_an_entirely_masked_minibatch_are_0(
    gradients: Callable[..., list[np.ndarray]], family: str
) -> None:
    outputs, actions, batch = minibatch(family)
    inputs = outputs, actions, batch._replace(mask=np.zeros(24))
    for gradient in gradients(inputs, family, clip_vloss=True, norm_adv=True):
        assert_array_equal(gradient, np.zeros_like(gradient))


@families
def test_float32_stays_float32(ns: Namespace, family: str) -> None:
    outputs, actions, batch = minibatch(family)
    outputs = tuple(x.astype(np.float32) for x in outputs)
    batch = ppo.Minibatch(*(x.astype(np.float32) for x in batch))
    actions = actions.astype(np.float32) if family == "normal" else actions
    result = ns.run(all_losses, outputs, actions, batch, family=family)
    assert {x.dtype for x in result} == {np.dtype(np.float32)}
    arrays = (x.astype(np.float32) for x in (REWARDS, VALUES, SECOND, NEVER))
    advantages = ns.run(ppo.gae, *arrays, gamma=0.9, gae_lambda=0.9)
    assert advantages.dtype == np.float32


@families
def test_losses_compile_to_one_graph_in_torch(family: str) -> None:
    inputs = minibatch(family)

    @torch.compile(fullgraph=True, backend="eager")
    def compiled(outputs: Any, actions: Any, batch: Any) -> ppo.Losses:
        return all_losses(torch, outputs, actions, batch, family)

    result = NAMESPACES["torch"].run(lambda _, *arrays: compiled(*arrays), *inputs)
    assert_allclose(result, transcription(inputs, family, clip_vloss=True, norm_adv=True), rtol=0, atol=1e-12)


# --- Optimisation -----------------------------------------------------------------------------------------------------


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


def test_learning_rate_anneals_from_full_to_one_step_above_0() -> None:
    rates = [ppo.annealed_learning_rate(2.5e-4, iteration, 10) for iteration in range(1, 11)]
    assert rates[0] == 2.5e-4
    assert_allclose(rates[5], 1.25e-4, rtol=1e-15)
    assert_allclose(rates[-1], 2.5e-5, rtol=1e-15)
    assert_allclose(np.diff(rates), -2.5e-5, rtol=1e-12)
    assert ppo.annealed_learning_rate(2.5e-4, 1, 1) == 2.5e-4
