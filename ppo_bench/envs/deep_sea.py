"""Deep sea, the exploration task of bsuite: find the treasure in an N x N grid (Osband et al. 2020).

The diver sinks one row per step, and reaches the treasure only by going right in each of the N steps. Each move to the
right has a small cost. The action that goes right differs from cell to cell, so that random play finds the treasure
once in 2^N episodes. The rules are written once, for gymnasium and for environments on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

SIZES = range(10, 41)
COST = 0.01
"""Total cost of going right in all N rows."""


class Diver(NamedTuple):
    """State of N environments: the diver's cell, integers `[N]`."""

    row: Array
    column: Array


def right_actions(size: int) -> np.ndarray:
    """The action that goes right in each cell, `[size, size]` of 0 and 1; the same for all episodes and seeds."""
    one, cells = np.ones(1, np.int32), np.arange(size * size, dtype=np.int32)
    key = noise.stream_key(np, one * size, noise.Stream.ENV_RESETS, one * 0, one * 0)
    words, _ = noise.threefry2x32(key, (cells, 0 * cells))
    return ((words >> 16) & 1).reshape(size, size)


class DeepSea(PortableDynamics):
    """`Dynamics` of deep sea in one size; every episode begins at the top left."""

    num_words = 1
    """The word is not used."""

    def __init__(self, size: int) -> None:
        self.time_limit = self._size = size
        self._right = right_actions(size)
        self._cells = np.arange(size * size, dtype=np.int32)
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, words: Array) -> Diver:
        """See `Dynamics.reset`."""
        zeros = self.xp.zeros_like(words[:, 0])
        return Diver(zeros, zeros)

    def step(self, state: Diver, actions: Array) -> tuple[Diver, Array, Array]:
        """See `Dynamics.step`."""
        xp, last = self.xp, self._size - 1
        row = xp.clip(state.row, 0, last)  # it exceeds the last row only after the end of an episode
        goes = xp.asarray(self._right)[row, state.column] == actions
        found = goes & (state.column == last)
        rewards = xp.asarray(found, dtype=xp.float64) - xp.asarray(goes, dtype=xp.float64) * (COST / self._size)
        column = xp.clip(state.column + xp.where(goes, 1, -1), 0, last)
        return Diver(state.row + 1, column), rewards, state.row + 1 >= self._size

    def observe(self, state: Diver) -> Array:
        """Observations `[N, size * size]` float32: 1 in the diver's cell, else 0; all 0 after the end of an episode."""
        xp, size = self.xp, self._size
        cell = xp.where(state.row < size, state.row * size + state.column, -1)
        return xp.asarray(cell[:, None] == self._cells, dtype=xp.float32)

    def draw(self, state: Diver) -> np.ndarray:
        """An image `[8 N, 8 N, 3]` uint8 of the sea: the diver orange, the treasure green."""
        cells = np.full((self._size, self._size, 3), (31, 119, 180), np.uint8)
        cells[-1, -1] = (44, 160, 44)
        row, column = (int(part[0]) for part in state)
        if row < self._size:
            cells[row, column] = (255, 127, 14)
        return np.kron(cells, np.ones((8, 8, 1), np.uint8))


for _size in SIZES:
    gymnasium.register(
        f"DeepSea{_size}-v0",
        "ppo_bench.envs.dynamics.gymnasium_env:DynamicsGymnasiumEnv",
        max_episode_steps=_size,
        kwargs={"dynamics": DeepSea(_size)},
    )
