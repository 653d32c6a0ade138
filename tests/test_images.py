"""Images of every layout that `network=auto` takes: which network it chooses, and what that network computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import Auto, Mlp
from ppo_bench.networks.torch.ops import TorchOps

AUTO = Auto([8], "tanh")
CHOICE = spaces.Discrete(3)
RNG = np.random.default_rng(1)


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (2, *shape), dtype=np.uint8)


def space_of(images: np.ndarray) -> spaces.Box:
    return spaces.Box(0, 255, images.shape[1:], images.dtype.type)


def outputs(network: NetworkSpec, obs: np.ndarray) -> np.ndarray:
    """Logits and values, `[N, 4]`, of a network with the initial weights of seed 1."""
    params = {name: torch.from_numpy(array) for name, array in initial_weights(network.parameters, 1).items()}
    arranged = torch.from_numpy(np.ascontiguousarray(network.to_input_layout(obs)))
    policy_outputs, values, _ = network.forward(TorchOps(torch.float32, torch.float32), params, arranged, {}, None)
    return np.concatenate([policy_outputs[0].numpy(), values[:, None].numpy()], 1)


@pytest.mark.parametrize(
    ("images", "as_usual"),
    [
        (grey := pixels(84, 84), grey[..., None]),
        (colours := pixels(4, 84, 84, 3), np.concatenate(list(np.moveaxis(colours, 1, 0)), -1)),
        (first := pixels(4, 3, 60, 80), np.concatenate(list(np.moveaxis(first, 1, 0)), 1)),
    ],
    ids=["[H, W]", "[F, H, W, C]", "[F, C, H, W]"],
)
def test_images_of_other_layouts_are_those_of_the_usual_one(images: np.ndarray, as_usual: np.ndarray) -> None:
    one, other = (AUTO.build(space_of(each), CHOICE) for each in (images, as_usual))
    assert one.module == other.module
    assert one.convolves
    assert one.input_shape == other.input_shape
    assert_array_equal(outputs(one, images), outputs(other, as_usual))


@pytest.mark.parametrize("shape", [(64, 64, 3), (3, 64, 64), (84, 84, 1), (2, 84, 84, 3)], ids=str)
def test_images_of_floats_are_taken_as_they_are(shape: tuple[int, ...]) -> None:
    images = pixels(*shape)
    bytes_, floats = space_of(images), spaces.Box(0, 1, shape, np.float32)
    one, other = AUTO.build(bytes_, CHOICE), AUTO.build(floats, CHOICE)
    assert one.module == other.module
    assert one.convolves
    assert not other.uint8
    assert_allclose(outputs(other, (images / 255.0).astype(np.float32)), outputs(one, images), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((84, 84), np.float32), ((84, 84, 3), np.int32), ((84, 84), np.int32), ((30, 30), np.uint8), ((84,), np.uint8)],
    ids=str,
)
def test_other_arrays_are_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    space = spaces.Box(0, 200, shape, dtype)
    assert AUTO.build(space, CHOICE) == Mlp([8], "tanh").build(space, CHOICE)
