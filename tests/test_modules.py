"""Modules as functions of parameters in the neutral layout."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.module_spec import ModuleSpec
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import NatureCnn
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


def test_a_module_with_other_parameters_is_refused() -> None:
    module = network().module
    assert isinstance(module, ModuleSpec)
    reversed_ones = dataclasses.replace(module, parameters=module.parameters[::-1])
    with pytest.raises(ValueError, match=r"NatureCnn has shape \(32, 4, 8, 8\), and critic.0.bias \(1,\)"):
        reversed_ones.torch_function()
