"""Opponents from the past: in each game one row is played by earlier parameters of the same run, and the others learn.

A pool has copies of the network's parameters, initially all of the initial ones. One of them is drawn per iteration and
plays all opponent rows, which are one batch. These rows are not used for learning (Bansal et al. 2018, section 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.values import younger
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array


@dataclass(frozen=True)
class Opponents:
    """The keys of conf/opponents/*.yaml, which explains them."""

    pool_size: int = younger(0)
    every_iterations: int = younger(1)

    def drawn(self, xp: Any, seed: Array, iteration: Array) -> Array:
        """Pool index `[1]` of the opponent in an iteration; `seed [1]` and `iteration [1]` are int32."""
        key = noise.stream_key(xp, seed, noise.Stream.OPPONENTS, iteration, xp.zeros_like(seed))
        word, _ = noise.threefry2x32(key, (xp.zeros_like(seed), xp.zeros_like(seed)))
        return (word & 0x7FFFFFFF) % self.pool_size

    def joins(self, iteration: Array) -> Array:
        """Whether the policy is added to the pool after an iteration, counted from 1."""
        return iteration % self.every_iterations == 0

    def place(self, iteration: Array) -> Array:
        """Pool index of the policy that is added after that iteration; it replaces the oldest one."""
        return (iteration // self.every_iterations - 1) % self.pool_size


NONE = Opponents()
"""Setting without opponents: all rows learn."""


class Sides(NamedTuple):
    """Division of N rows between the learning policy and the opponent; integer arrays."""

    own: Array
    """Rows of the learning policy, `[M]`."""
    theirs: Array
    """Rows of the opponent, `[N - M]`."""
    order: Array
    """Index `[N]` of each row in the concatenation of `own` and `theirs`."""


def sides(num_envs: int, players: int) -> Sides:
    """Sides for games of `players` consecutive rows each: in game k the opponent plays row `k % players`."""
    games = np.arange(num_envs // players)
    theirs = games * players + games % players
    own = np.setdiff1d(np.arange(num_envs), theirs)
    return Sides(own, theirs, np.argsort(np.concatenate([own, theirs])))
