"""Modules as functions of parameters in the neutral layout, and activations at their kinks."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from numpy.testing import assert_allclose

from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks import spec
from ppo_bench.networks.flax import layers as flax_layers
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import NatureCnn
from ppo_bench.networks.torch import layers as torch_layers
from ppo_bench.networks.torch.ops import TorchOps

IMAGES = Box(0, 255, (4, 40, 40), np.uint8)


def network() -> NetworkSpec:
    return NatureCnn().build(IMAGES, Discrete(3))


def test_gradients_are_whole_after_a_call_without_them() -> None:
    """Of the same dictionary, whose views for convolutions an earlier call made without gradients."""
    spec, ops = network(), TorchOps(torch.float64, torch.float64)
    weights = initial_weights(spec.parameters, 1)
    params = {name: torch.from_numpy(x).double().requires_grad_() for name, x in weights.items()}
    layers = {name: x.to(torch.float64) for name, x in params.items()}
    obs = torch.from_numpy(np.random.default_rng(0).random((2, 40, 40, 4)))
    with torch.no_grad():
        expected, _ = ops.call(spec.module, layers, obs)
    output, values = ops.call(spec.module, layers, obs)
    assert torch.equal(output, expected)
    gradients = torch.autograd.grad(output.square().sum() + values.square().sum(), list(params.values()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


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
    "gelu": lambda x: (x * normal_cdf(x), normal_cdf(x) + x * math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)),
    "silu": lambda x: (x * logistic(x), logistic(x) + x * logistic(x) * (1.0 - logistic(x))),
}
"""Value and derivative of each activation; at a kink, the derivative that PyTorch takes."""


@pytest.mark.parametrize("activation", spec.ACTIVATIONS)
def test_activations_have_the_same_values_and_derivatives_in_both_frameworks(activation: str) -> None:
    expected = np.array([EXPECTED[activation](float(x)) for x in POINTS]).T
    x = torch.tensor(POINTS, requires_grad=True)
    y = torch_layers.ACTIVATIONS[activation](x * 1.0)  # an activation may work in place
    y.sum().backward()
    assert x.grad is not None
    assert_allclose([y.detach().numpy(), x.grad.numpy()], expected, rtol=1e-14, atol=1e-17)
    with jax.enable_x64(True):
        activate, points = flax_layers.ACTIVATIONS[activation], jnp.asarray(POINTS)
        assert_allclose([activate(points), jax.vmap(jax.grad(activate))(points)], expected, rtol=1e-14, atol=1e-17)
