"""Functions with kinks: value and derivative at the kink and on both sides, in every framework."""

from __future__ import annotations

import math
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from ppo_bench.networks.decoder import cross_entropy
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.layers import Activation
from ppo_bench.networks.torch.ops import TorchOps

POINTS = np.array([-1.5, -1e-3, 0.0, 1e-3, 1.5])


def normal_cdf(x: float) -> float:
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


EXPECTED: dict[str, Any] = {
    "tanh": lambda x: (math.tanh(x), 1.0 - math.tanh(x) ** 2),
    "relu": lambda x: (x, 1.0) if x > 0 else (0.0, 0.0),
    "leaky_relu": lambda x: (x, 1.0) if x > 0 else (0.01 * x, 0.01),
    "elu": lambda x: (x, 1.0) if x > 0 else (math.expm1(x), math.exp(x)),
    "gelu": lambda x: (
        x * normal_cdf(x),
        normal_cdf(x) + x * math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi),
    ),
    "silu": lambda x: (x * logistic(x), logistic(x) + x * logistic(x) * (1.0 - logistic(x))),
}
"""Value and derivative of each activation; at a kink, the derivative that PyTorch takes."""


@pytest.mark.parametrize("activation", get_args(Activation))
def test_activations_have_the_same_values_and_derivatives_in_both_frameworks(activation: Activation) -> None:
    expected = np.array([EXPECTED[activation](float(x)) for x in POINTS]).T
    x = torch.tensor(POINTS, requires_grad=True)
    y = TorchOps(torch.float64, torch.float64).activate(activation, x * 1.0)  # an activation may work in place
    y.sum().backward()
    assert x.grad is not None
    assert_allclose([y.detach().numpy(), x.grad.numpy()], expected, rtol=1e-14, atol=1e-17)
    with jax.enable_x64(True):
        ops, points = JaxOps(jnp.float64, jnp.float64), jnp.asarray(POINTS)
        values, derivatives = (
            ops.activate(activation, points),
            jax.vmap(jax.grad(lambda v: ops.activate(activation, v))),
        )
        assert_allclose([values, derivatives(points)], expected, rtol=1e-14, atol=1e-17)


def test_the_cross_entropy_of_a_logit_has_the_same_derivative_in_both_frameworks() -> None:
    """It is sigmoid(logit) - target, at 0 as well."""
    expected = [logistic(float(x)) - 0.25 for x in POINTS]
    x = torch.tensor(POINTS, requires_grad=True)
    (len(POINTS) * cross_entropy(torch, x, torch.full_like(x, 0.25))).backward()
    assert x.grad is not None
    assert_allclose(x.grad.numpy(), expected, rtol=1e-14)
    with jax.enable_x64(True):
        points = jnp.asarray(POINTS)
        gradient = jax.grad(lambda v: len(POINTS) * cross_entropy(jnp, v, jnp.full_like(v, 0.25)))(points)
        assert_allclose(gradient, expected, rtol=1e-14)
