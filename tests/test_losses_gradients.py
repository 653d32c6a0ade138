"""Gradients of the losses, beside finite differences and at the edges of clips and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import ppo
from tests.test_losses import DISTRIBUTIONS, Inputs, all_losses, combinations, families, minibatch


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
    batch = ppo.Transitions(*(torch.tensor(x) for x in inputs[2]))
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
def test_gradients_of_an_entirely_masked_minibatch_are_0(
    gradients: Callable[..., list[np.ndarray]], family: str
) -> None:
    outputs, actions, batch = minibatch(family)
    inputs = outputs, actions, batch._replace(value_weight=np.zeros(24), policy_weight=np.zeros(24))
    for gradient in gradients(inputs, family, clip_vloss=True, norm_adv=True):
        assert_array_equal(gradient, np.zeros_like(gradient))
