"""Images of every layout that `network=auto` takes: which network it chooses, and what that network computes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.common.flattened import FlattenedBox
from ppo_bench.envs.base import Task
from ppo_bench.envs.gymnasium import GymnasiumBackend
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.convolutions import find_images
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


@pytest.mark.parametrize("shape", [(4, 84, 84, 3), (4, 3, 60, 80), (64, 64, 3)], ids=str)
def test_images_in_dictionaries_are_found_with_several_frames_too(shape: tuple[int, ...]) -> None:
    parts = spaces.Dict({"image": spaces.Box(0, 255, shape, np.uint8), "speed": spaces.Box(-1, 1, (2,), np.float32)})
    box = spaces.utils.flatten_space(parts)
    space = FlattenedBox(box, parts.spaces.values())
    assert [image.shape for image in find_images(space)] == [shape]
    network = AUTO.build(space, CHOICE)
    flat: Any = [spaces.utils.flatten(parts, parts.sample()) for _ in range(2)]
    obs = np.stack(flat).astype(np.float32)
    assert np.isfinite(outputs(network, obs)).all()


class Grey(gymnasium.Env[Any, Any]):
    """A grey image that holds its number of steps, beside a speed or alone."""

    action_space = CHOICE

    def __init__(self, alone: bool = False) -> None:
        image, speed = spaces.Box(0, 255, (40, 50), np.uint8), spaces.Box(-1, 1, (2,), np.float32)
        parts: Any = {"image": image} if alone else {"speed": speed, "image": image}
        self.observation_space: Any = spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 51
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 51
        return self._observe(), 0.0, self._steps == 255, False, {}

    def _observe(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"image": np.full((40, 50), self._steps, np.uint8), "speed": np.full(2, 0.5, np.float32)}
        return {name: seen[name] for name in self.observation_space.spaces}


gymnasium.register("Grey-v0", "tests.test_images:Grey")


@pytest.mark.parametrize("alone", [False, True])
def test_grey_images_in_dictionaries_have_convolutions(alone: bool) -> None:
    task = Task("x", "tests.test_images:Grey-v0", 2, kwargs={"alone": alone})
    env: Any = GymnasiumBackend("gymnasium", "sync").make(task)
    obs = env.reset([1, 2]).obs
    network: Any = AUTO.build(env.observation_space, CHOICE)
    assert [eye.image.shape for eye in dict(network.module.options)["image_encoders"]] == [(40, 50, 1)]
    (image,) = find_images(env.observation_space)
    pixels = obs[:, image.start : image.stop].astype(np.float64) / (255 if network.uint8 else 1)
    assert_allclose(pixels, 0.2, rtol=1e-6)
    assert network.uint8 == alone
    assert np.isfinite(outputs(network, obs)).all()
    env.close()
