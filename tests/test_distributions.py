"""Policies against numbers worked out by hand and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import distributions
from tests.namespaces import Namespace

LN2 = math.log(2.0)
LN2PI = math.log(2.0 * math.pi)


@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
def test_categorical_by_hand(ns: Namespace, shift: float) -> None:
    # probabilities 1/2, 1/4, 1/4: entropy 1/2 ln 2 + 2 * 1/4 ln 4
    policy_outputs = (np.array([[-LN2, -2 * LN2, -2 * LN2]] * 3) + shift,)
    log_probs = ns.run(distributions.categorical_log_prob, policy_outputs, np.array([0, 1, 2]))
    assert_allclose(log_probs, [-LN2, -2 * LN2, -2 * LN2], rtol=1e-13)
    assert_allclose(ns.run(distributions.categorical_entropy, policy_outputs), [1.5 * LN2] * 3, rtol=1e-13)


def test_categorical_stays_finite_at_extreme_logits(ns: Namespace) -> None:
    policy_outputs = (np.array([[1000.0, 0.0], [1000.0, 0.0], [-1000.0, 1000.0]]),)
    assert_array_equal(
        ns.run(distributions.categorical_log_prob, policy_outputs, np.array([0, 1, 0])), [0, -1000, -2000]
    )
    assert_array_equal(ns.run(distributions.categorical_entropy, policy_outputs), [0, 0, 0])


def test_categorical_sample_is_the_argmax_of_logits_and_noise(ns: Namespace) -> None:
    logits, noise = np.array([[0.0, 1.0, 0.5]] * 2), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.6]])
    assert_array_equal(ns.run(distributions.categorical_sample, (logits,), noise), [1, 2])


def test_choices_side_by_side_by_hand(ns: Namespace) -> None:
    # probabilities (1/2, 1/4, 1/4) and (1/5, 4/5)
    policy_outputs = (np.log([[0.5, 0.25, 0.25, 0.2, 0.8]] * 3),)
    policy = distributions.multi_categorical((3, 2))
    actions = np.array([[0, 0], [1, 1], [2, 0]])
    assert_allclose(ns.run(policy.log_prob, policy_outputs, actions), np.log([0.1, 0.2, 0.05]), rtol=1e-13)
    entropy = 1.5 * LN2 - 0.2 * math.log(0.2) - 0.8 * math.log(0.8)
    assert_allclose(ns.run(policy.entropy, policy_outputs), [entropy] * 3, rtol=1e-13)


def test_choices_side_by_side_take_the_noise_of_their_own_lanes(ns: Namespace) -> None:
    logits = np.array([[0.0, 1.0, 0.5, 0.0, 0.1]] * 2)
    noise = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.6, 9.0, 0.0]])
    policy = distributions.multi_categorical((3, 2))
    assert_array_equal(ns.run(policy.sample, (logits,), noise), [[1, 1], [2, 0]])


def test_normal_by_hand(ns: Namespace) -> None:
    # standard deviations 1 and 2, both actions one of them off: 2 * (-1/2 - 1/2 ln 2 pi) - ln 2
    policy_outputs = (np.array([[0.0, 1.0]]), np.array([0.0, LN2]))
    assert_allclose(
        ns.run(distributions.normal_log_prob, policy_outputs, np.array([[1.0, 3.0]])), [-1 - LN2PI - LN2], rtol=1e-14
    )
    # 2 * 1/2 ln(2 pi e) + ln 2
    assert_allclose(ns.run(distributions.normal_entropy, policy_outputs), [1 + LN2PI + LN2], rtol=1e-14)


def test_normal_sample_scales_and_shifts_the_noise(ns: Namespace) -> None:
    policy_outputs = (np.array([[1.0, -1.0]]), np.array([0.0, LN2]))
    assert_allclose(
        ns.run(distributions.normal_sample, policy_outputs, np.array([[0.5, 3.0]])), [[1.5, 5.0]], rtol=1e-15
    )


def test_the_standard_deviation_of_a_normal_policy_follows_from_its_entropy() -> None:
    log_std = np.log([0.5, 2.0, 27.0])
    entropy = distributions.normal_entropy(np, (np.zeros((4, 3)), log_std))
    assert_allclose([distributions.std_from_entropy(each, 3) for each in entropy], 3.0, rtol=1e-12)
