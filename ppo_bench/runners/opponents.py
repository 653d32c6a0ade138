"""Opponents from the past: in each game one row plays earlier parameters of the same run, and the others learn.

A pool has copies of the network's parameters, at first all of them the initial ones. Which of them plays is drawn for
each iteration; all of its rows are one batch. Nothing of it is learnt from (Bansal et al. 2018, section 4.3).
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
        """The place in the pool `[1]` of who plays in an iteration; `seed [1]` and `iteration [1]` are int32."""
        key = noise.stream_key(xp, seed, noise.Stream.OPPONENTS, iteration, xp.zeros_like(seed))
        word, _ = noise.threefry2x32(key, (xp.zeros_like(seed), xp.zeros_like(seed)))
        return (word & 0x7FFFFFFF) % self.pool_size

    def joins(self, iteration: Array) -> Array:
        """Whether the policy joins the pool after an iteration, counted from 1."""
        return iteration % self.every_iterations == 0

    def place(self, iteration: Array) -> Array:
        """The place of the policy that joins it then: that of the oldest."""
        return (iteration // self.every_iterations - 1) % self.pool_size


NONE = Opponents()
"""All rows learn."""


class Sides(NamedTuple):
    """Who plays which of N rows."""

    own: Array
    """`[M]` integers: the rows of the policy that learns."""
    theirs: Array
    """`[N - M]`: those of the opponent."""
    order: Array
    """`[N]`: where each row is among those two, one after the other."""


def sides(num_envs: int, players: int) -> Sides:
    """The sides of games of `players` rows each: in game k the opponent's is row `k % players`."""
    games = np.arange(num_envs // players)
    theirs = games * players + games % players
    own = np.setdiff1d(np.arange(num_envs), theirs)
    return Sides(own, theirs, np.argsort(np.concatenate([own, theirs])))
