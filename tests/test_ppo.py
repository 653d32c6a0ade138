"""Clipping of gradients and annealing of the learning rate, against known numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import ppo
from tests.namespaces import Namespace


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
    rates = [ppo.linear_schedule(2.5e-4, 0.0, (iteration - 1) / 10) for iteration in range(1, 11)]
    assert rates[0] == 2.5e-4
    assert_allclose(rates[5], 1.25e-4, rtol=1e-15)
    assert_allclose(rates[-1], 2.5e-5, rtol=1e-15)
    assert_allclose(np.diff(rates), -2.5e-5, rtol=1e-12)
    assert ppo.linear_schedule(2.5e-4, 0.0, 0.0) == 2.5e-4
