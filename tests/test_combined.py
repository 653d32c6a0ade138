"""Images of every layout, alone and in dictionaries with numbers: the network that is chosen, and what it computes."""

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
from ppo_bench.envs.observation_flattening import ObservationFlattener
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.convolutions import find_images
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.spec import Auto, Combined, Mlp
from ppo_bench.networks.torch.ops import TorchOps

SIDE = 36
PIXELS = SIDE * SIDE * 3


class Agreeing(gymnasium.Env[dict[str, Any], Any]):
    """One-step episodes: 1 is right if the left half is bright and the number positive, or neither is.

    Neither image nor number alone says anything about the right action. The keys are not in alphabetical order.
    """

    observation_space = spaces.Dict(
        sign=spaces.Box(-1.0, 1.0, (1,), np.float32), camera=spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    )
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.positive = self.np_random.integers(2, size=2)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return self._obs(), float(np.all(action == (self.left == self.positive))), True, False, {}

    def _obs(self) -> dict[str, Any]:
        camera = np.zeros((SIDE, SIDE, 3), np.uint8)
        camera[:, slice(SIDE // 2) if self.left else slice(SIDE // 2, None)] = 255
        return {"camera": camera, "sign": np.array([2.0 * self.positive - 1.0], np.float32)}


gymnasium.register("Agreeing-v0", "tests.test_combined:Agreeing")
ENV_ID = "tests.test_combined:Agreeing-v0"


def test_arrays_lie_where_the_space_says() -> None:
    arm = spaces.Dict(view=spaces.Box(0, 1, (2, 3, 4)), angles=spaces.Box(-1, 1, (2,)))
    pair = spaces.Tuple((spaces.Box(-1, 1, (2, 2)), spaces.MultiDiscrete([2, 3])))
    space: Any = spaces.Dict({"z": spaces.Discrete(3), "arm": arm, "pair": pair})
    flattener = ObservationFlattener(space)
    found = flattener.space
    assert found.names == ("arm:angles", "arm:view", "pair:0", "pair:1", "z")
    space.seed(1)
    sample = space.sample()
    vector = flattener.flatten_row(sample)
    angles, view, square, choices, z = (vector[a.start : a.stop].reshape(a.shape) for a in found.arrays)
    assert_array_equal(view, sample["arm"]["view"])
    assert_array_equal(angles, sample["arm"]["angles"])
    assert_array_equal(square, sample["pair"][0])
    assert choices.sum() == 2
    assert_array_equal(z, np.arange(3) == sample["z"])


@pytest.mark.parametrize(
    ("shape", "is_image"),
    [
        ((36, 36, 3), True),
        ((1, 36, 200), True),
        ((35, 36, 3), False),
        ((3, 640, 35), False),
        ((64, 16, 64), False),
        ((36, 36, 36), False),  # no channels, but a space
        ((84, 84), False),
        ((0, 84, 84), False),
    ],
)
def test_an_image_is_what_convolutions_can_take(shape: tuple[int, ...], is_image: bool) -> None:
    part = spaces.Box(0, 1, shape)
    assert len(find_images(FlattenedBox(spaces.flatten_space(part), {"": part}, np.asarray))) == is_image
    assert find_images(part) == []


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_environments_say_where_their_images_are(vectorization: str) -> None:
    env = GymnasiumBackend("gymnasium", vectorization).make(Task("x", ENV_ID, 2))
    obs = env.reset([1, 2]).obs
    (image,) = find_images(env.observation_space)
    assert (image.start, image.shape) == (0, (SIDE, SIDE, 3))  # bytes are scaled in a dictionary that is sorted
    assert obs.shape == (2, PIXELS + 1)
    assert set(np.unique(obs[:, :PIXELS])) == {0.0, 1.0}
    assert set(obs[:, PIXELS]) <= {-1.0, 1.0}
    env.close()


def test_envpools_vectors_say_it_too() -> None:
    camera, arm = spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8), spaces.Box(-1, 1, (4,), np.float32)
    vectors = ObservationFlattener(spaces.Dict({"z": camera, "arm": arm}))
    (image,) = find_images(vectors.space)
    assert (image.start, image.stop, image.shape) == (4, 4 + PIXELS, (3, SIDE, SIDE))
    grey = ObservationFlattener(spaces.Dict({"z": spaces.Box(0, 255, (SIDE, SIDE), np.uint8), "arm": arm}))
    assert [image.shape for image in find_images(grey.space)] == [(SIDE, SIDE, 1)]


def test_an_image_of_bytes_beside_bytes_is_divided_by_255() -> None:
    parts: dict[str, Any] = {
        "a": spaces.Box(0, 255, (2,), np.uint8),
        "b": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
    }
    of_bytes = ObservationFlattener(spaces.Dict(parts)).space
    of_floats = FlattenedBox(spaces.Box(0.0, 1.0, of_bytes.shape, np.float32), parts, np.asarray)
    network, plain = (Combined([8], "tanh").build(space, spaces.Discrete(2)) for space in (of_bytes, of_floats))
    assert (network.uint8, plain.uint8, network.scaled_weights) == (True, False, ())
    weights = initial_weights(network.parameters, 1)
    params = {name: torch.from_numpy(array).double() for name, array in weights.items()}
    obs = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (3, PIXELS + 2), np.uint8))
    ops = TorchOps(torch.float64, torch.float64)
    found, expected = (
        one.forward(ops, params, seen, {}, None) for one, seen in ((network, obs), (plain, obs.double() / 255.0))
    )
    assert_allclose(found.values, expected.values, rtol=1e-12)
    assert float(found.values.std()) > 0.0


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
    assert any(len(each.shape) == 4 for each in one.parameters)  # convolutions
    assert one.input_shape == other.input_shape
    assert_array_equal(outputs(one, images), outputs(other, as_usual))


@pytest.mark.parametrize("shape", [(64, 64, 3), (3, 64, 64), (84, 84, 1), (2, 84, 84, 3)], ids=str)
def test_images_of_floats_are_taken_as_they_are(shape: tuple[int, ...]) -> None:
    images = pixels(*shape)
    bytes_, floats = space_of(images), spaces.Box(0, 1, shape, np.float32)
    one, other = AUTO.build(bytes_, CHOICE), AUTO.build(floats, CHOICE)
    assert one.module == other.module
    assert any(len(each.shape) == 4 for each in one.parameters)  # convolutions
    assert not other.uint8
    assert_allclose(outputs(other, (images / 255.0).astype(np.float32)), outputs(one, images), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((84, 84), np.float32),
        ((84, 84, 3), np.int32),
        ((84, 84), np.int32),
        ((30, 30), np.uint8),
        ((84,), np.uint8),
        ((84,), np.bool_),
    ],
    ids=str,
)
def test_other_arrays_are_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    space = spaces.Box(0, 1 if dtype == np.bool_ else 200, shape, dtype)
    assert AUTO.build(space, CHOICE) == Mlp([8], "tanh").build(space, CHOICE)
