"""The decoder that reconstructs images, beside PyTorch's transposed convolutions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose

from ppo_bench.networks.transformer import Trxl
from tests.layers import DIM, SMALL, WAYS, drawn
from tests.runners import ACTING, problem_for, runner_for
from tests.scenes import RandomScenes


@pytest.mark.parametrize(("way", "grad"), [("torch", torch.func.grad), ("jax", jax.grad)])
def test_a_decoder_is_pytorchs_transposed_convolutions(way: str, grad: Any) -> None:
    """The derivative of the loss by a pixel of the image is its logit, negative and divided by the number of pixels."""
    trxl = Trxl(1, 1, DIM, 2, "none", 9, False, reconstruction_coef=0.5)
    spec = trxl.build(spaces.Box(0, 255, (44, 44, 3), np.uint8), spaces.Discrete(DIM))
    weights = {p.name: 0.1 * drawn(*p.shape, seed=k) for k, p in enumerate(spec.parameters)}
    weights |= {"actor.0.weight": np.eye(DIM), "actor.0.bias": np.zeros(DIM)}  # its outputs are the hidden layer's
    seen = np.random.default_rng(1).random((2, 44, 44, 3))
    with jax.enable_x64(True):
        ops, array = WAYS[way]
        params, start = {name: array(a) for name, a in weights.items()}, array(np.zeros(2))
        carry = {c.name: array(np.zeros((2, *c.shape))) for c in spec.carry}

        def called(image: Any) -> Any:
            return ops.call(spec.module, params, array(seen), carry, start, image=image)

        hidden, *_, loss = called(array(seen))
        found = -seen.size * np.asarray(grad(lambda image: called(image)[-1])(array(seen)))
    flat = np.asarray(hidden) @ weights["decoder.0.weight"].T + weights["decoder.0.bias"]
    x = torch.relu(torch.from_numpy(flat)).reshape(2, 2, 2, 64).permute(0, 3, 1, 2)
    for k, stride in ((1, 1), (2, 2), (3, 4)):
        weight = torch.from_numpy(weights[f"decoder.{k}.weight"]).permute(3, 0, 1, 2)
        x = torch.nn.functional.conv_transpose2d(x, weight, torch.from_numpy(weights[f"decoder.{k}.bias"]), stride)
        x = torch.relu(x) if k < 3 else x
    expected = x.permute(0, 2, 3, 1)
    assert_allclose(found, expected, rtol=0, atol=1e-12)
    distance = torch.nn.functional.binary_cross_entropy(torch.sigmoid(expected), torch.from_numpy(seen))
    assert float(loss) == pytest.approx(float(distance), rel=1e-12)


def test_images_are_learnt_in_every_framework_alike() -> None:
    """The loss is a column of its own, and moves the same weights."""
    words = [*SMALL, "network.reconstruction_coef=1.0", "precision=float64", "ppo.num_steps=8"]
    losses, weights, begun = [], [], np.zeros(())
    for framework in ACTING:
        runner = runner_for(framework, problem_for(RandomScenes(4, True, False), 10, words))
        state = runner.init(1)
        begun = runner.export(state)["params.decoder.2.weight"]
        state, metrics, _ = runner.iterate(state)
        losses.append(metrics["reconstruction_loss"])
        weights.append(runner.export(state)["params.decoder.2.weight"])
        runner.close()
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    assert_allclose(weights[0], weights[1], rtol=0, atol=1e-10)
    assert np.abs(weights[0] - begun).max() > 1e-4
