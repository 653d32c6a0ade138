"""Dictionary and discrete observations are flattened as gymnasium flattens them; MiniGrid's grids are categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import is_byte_space
from ppo_bench.envs.observation_flattening import ObservationFlattener, declare_categories, observation_flattener
from ppo_bench.networks.spec import Mlp

SPACES = {
    "choice": spaces.Discrete(5),
    "choice that does not start at 0": spaces.Discrete(4, start=3),
    "choices": spaces.MultiDiscrete([3, 2, 4]),
    "choices that do not start at 0": spaces.MultiDiscrete([3, 2], start=[1, 4]),
    "grid of choices": spaces.MultiDiscrete(np.array([[3, 2], [4, 5]])),
    "dictionary": spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(-1, 1, (2, 2), np.float64)}),
    "dictionary of dictionaries": spaces.Dict(
        {"z": spaces.Discrete(2), "c": spaces.Dict({"y": spaces.Box(0, 1, (), np.float32), "x": spaces.MultiBinary(2)})}
    ),
}


def stacked(samples: list[Any]) -> Any:
    if isinstance(samples[0], dict):
        return {name: stacked([sample[name] for sample in samples]) for name in samples[0]}
    return np.stack(samples)


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_the_layout_is_gymnasiums(space: Any) -> None:
    space.seed(1)
    samples = [space.sample() for _ in range(7)]
    vectors = ObservationFlattener(space)
    found = vectors(stacked(samples))
    assert_array_equal(found, [spaces.flatten(space, sample) for sample in samples])
    assert (found.shape[1:], found.dtype) == (vectors.space.shape, vectors.space.dtype)
    assert_array_equal(vectors.flatten_row(samples[0]), found[0])


def test_a_board_stays_a_board() -> None:
    board = declare_categories("ConnectFour-v1", spaces.MultiBinary((6, 7, 2)))
    assert board == spaces.Box(0, 1, (6, 7, 2), np.bool_)  # type: ignore[arg-type]
    assert observation_flattener(board) is None


def flattened(parts: dict[str, Any], obs: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """The space of an observation's vector, and the vector."""
    flattener = ObservationFlattener(spaces.Dict(parts))
    vector = flattener.flatten_row(obs)
    assert flattener.space.contains(vector)
    return flattener.space, vector


def test_parts_whose_joined_names_are_the_same_are_refused() -> None:
    one = spaces.Box(-1, 1, (1,))
    with pytest.raises(ConfigError, match="two parts of the observations are named a:b: rename one, without a colon"):
        observation_flattener(spaces.Dict({"a:b": one, "a": spaces.Dict({"b": one})}))


def test_bytes_beside_other_parts_are_scaled_and_bytes_alone_are_left_to_the_network() -> None:
    pixels, flags = spaces.Box(0, 255, (2,), np.uint8), spaces.Box(0, 1, (2,), np.uint8)
    several = spaces.Tuple((spaces.Discrete(2), flags))
    obs = {"p": np.array([51, 255], np.uint8), "t": (1, np.array([0, 1], np.uint8))}
    _, vector = flattened({"p": pixels, "t": several}, obs)
    assert_allclose(vector, [0.2, 1.0, 0.0, 1.0, 0.0, 1.0], rtol=1e-7)
    obs = {"f": np.array([0, 1], np.uint8), "p": np.array([51, 255], np.uint8)}
    assert_allclose(flattened({"f": flags, "p": pixels}, obs)[1], [0.0, 1.0, 0.2, 1.0], rtol=1e-7)
    box, vector = flattened({"p": pixels, "q": pixels}, {"p": obs["p"], "q": obs["p"]})
    assert_array_equal(vector, [51, 255, 51, 255])
    assert is_byte_space(box)


def test_bytes_of_lower_bounds_are_numbers_like_others() -> None:
    counts, flags, pixels = (spaces.Box(0, high, (2,), np.uint8) for high in (64, 1, 255))
    assert [is_byte_space(space) for space in (counts, flags, pixels)] == [False, False, True]
    assert [Mlp([8], "tanh").build(space, spaces.Discrete(2)).uint8 for space in (counts, pixels)] == [False, True]
    obs = {"c": np.array([3, 64], np.uint8), "p": np.array([51, 255], np.uint8)}
    assert_allclose(flattened({"c": counts, "p": pixels}, obs)[1], [3.0, 64.0, 0.2, 1.0], rtol=1e-7)


def test_grey_images_get_an_axis_for_their_channel_and_other_matrices_do_not() -> None:
    grey, matrix = spaces.Box(0, 255, (40, 50), np.uint8), spaces.Box(0, 1, (40, 50), np.float32)
    image = np.full((40, 50), 51, np.uint8)
    box, vector = flattened({"g": grey, "m": matrix}, {"g": image, "m": np.zeros((40, 50), np.float32)})
    assert [array.shape for array in box.arrays] == [(40, 50, 1), (40, 50)]
    assert_allclose(vector[:2000], 0.2, rtol=1e-6)
    box, vector = flattened({"g": grey}, {"g": image})
    assert (box.dtype, box.arrays[0].shape) == (np.uint8, (40, 50, 1))
    assert_array_equal(vector, 51)


def test_a_cell_of_minigrid_by_hand() -> None:
    """A locked (2) red (0) door (4), beside a cell that was not seen; bytes of a text count as 255 to 1."""
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (1, 2, 3), np.uint8), "mission": spaces.Box(0, 255, (2,), np.uint8)}
    )
    vectors = ObservationFlattener(declare_categories("MiniGrid-Empty-5x5-v0", space))
    obs = {"image": np.array([[[[4, 0, 2], [0, 0, 0]]]], np.uint8), "mission": np.array([[51, 255]], np.uint8)}
    door, unseen = np.zeros(20), np.zeros(20)
    door[[4, 11 + 0, 11 + 6 + 2]] = 1
    unseen[[0, 11, 17]] = 1
    assert_allclose(vectors(obs)[0], np.array([*door, *unseen, 0.2, 1.0], np.float32), rtol=1e-7)
    assert declare_categories("Sokoban-v0", space) is space
