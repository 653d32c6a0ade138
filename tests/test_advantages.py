"""Advantages and statistics over masked transitions, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import ppo
from tests.namespaces import Namespace

WILD = 1e6  # what masked entries hold: one that leaks cannot be overlooked


def column(*values: float) -> np.ndarray:
    """A `[T, 1]` array: one environment."""
    return np.array(values, np.float64)[:, None]


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


def test_gae_of_float32_is_float32(ns: Namespace) -> None:
    arrays = (x.astype(np.float32) for x in (REWARDS, VALUES, SECOND, NEVER))
    assert ns.run(ppo.gae, *arrays, gamma=0.9, gae_lambda=0.9).dtype == np.float32


# --- Masked statistics ------------------------------------------------------------------------------------------------


def test_centered_moments_by_hand(ns: Namespace) -> None:
    centered, variance = ns.run(ppo.centered_moments, [1, WILD, 2, 3], [1 / 3, 0, 1 / 3, 1 / 3])
    assert_allclose(centered[[0, 2, 3]], [-1, 0, 1], rtol=0, atol=1e-15)
    assert_allclose(variance, [2 / 3], rtol=1e-15)  # (1 + 0 + 1) / 3, not / 2


def normalized_advantages(ns: Namespace, advantages: list[float], policy_mask: list[float]) -> np.ndarray:
    """Advantages of a minibatch, normalised by its own moments."""

    def function(xp: Any, advantages: Any, policy_mask: Any) -> Any:
        return ppo.normalize_advantages(xp, advantages, ppo.normalize_masks(xp, policy_mask))

    return ns.run(function, advantages, policy_mask)


def test_normalized_advantages_by_hand(ns: Namespace) -> None:
    normalized = normalized_advantages(ns, [1, 2, WILD, 3], [1, 1, 0, 1])
    scale = 1 / (math.sqrt(2 / 3) + 1e-8)
    assert_allclose(normalized[[0, 1, 3]], [-scale, 0, scale], rtol=1e-15)


def test_constant_advantages_normalize_to_0(ns: Namespace) -> None:
    assert_array_equal(normalized_advantages(ns, [3, 3, 3], [1, 1, 1]), [0, 0, 0])


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
