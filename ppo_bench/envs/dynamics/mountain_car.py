"""MountainCar-v0 and MountainCarContinuous-v0, with the roundings of gymnasium's versions (Moore 1990).

See ppo_bench/envs/dynamics/rounding.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.envs.dynamics.rounding import cos, round_product
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

POSITIONS = (-1.2, 0.6)
MAX_SPEED = 0.07
GOAL = 0.5
FORCE = 0.001
POWER = 0.0015
"""Acceleration by the largest push in the continuous version."""
CONTINUOUS_GOAL = 0.45
GRAVITY = 0.0025
STARTS = (-0.6, -0.4)


class MountainCarState(NamedTuple):
    """Position and velocity, `[N]` float64 each."""

    position: Array
    velocity: Array


class MountainCar(PortableDynamics):
    """`Dynamics` of MountainCar-v0; the reward is -1 for every step."""

    time_limit = 200
    short_steps = True
    num_words = 1

    def __init__(self) -> None:
        low, high = np.array([[POSITIONS[0], -MAX_SPEED], [POSITIONS[1], MAX_SPEED]], np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, words: Array) -> MountainCarState:
        """See `Dynamics.reset`: at rest near the bottom of the valley."""
        position = _starts(self.xp, words)
        return MountainCarState(position, self.xp.zeros_like(position))

    def step(self, state: MountainCarState, actions: Array) -> tuple[MountainCarState, Array, Array]:
        """See `Dynamics.step`: actions 0, 1 and 2 push to the left, not at all, and to the right."""
        xp, (position, velocity) = self.xp, state
        push = round_product(xp, xp.asarray(actions - 1, dtype=xp.float64) * FORCE)
        velocity = velocity + (push - round_product(xp, GRAVITY * cos(xp, round_product(xp, 3.0 * position))))
        velocity = xp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = xp.clip(position + velocity, *POSITIONS)
        velocity = xp.where((position == POSITIONS[0]) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL) & (velocity >= 0)
        return MountainCarState(position, velocity), -xp.ones_like(position), terminated

    def observe(self, state: MountainCarState) -> Array:
        """See `Dynamics.observe`."""
        return self.xp.asarray(self.xp.stack(tuple(state), -1), dtype=self.xp.float32)


class ContinuousState(NamedTuple):
    """Position and velocity, `[N]` float64 each, and flags `moved [N]` of the episodes after their first step.

    After the first step position and velocity are float32 values, as in gymnasium.
    """

    position: Array
    velocity: Array
    moved: Array


class MountainCarContinuous(PortableDynamics):
    """`Dynamics` of MountainCarContinuous-v0; the reward is 100 at the goal, minus 0.1 times the squared action."""

    time_limit = 999
    short_steps = True
    num_words = 1

    def __init__(self) -> None:
        self.observation_space = MountainCar().observation_space
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, words: Array) -> ContinuousState:
        """See `Dynamics.reset`: at rest near the bottom of the valley."""
        position = _starts(self.xp, words)
        return ContinuousState(position, self.xp.zeros_like(position), self.xp.zeros_like(position, dtype=self.xp.bool))

    def step(self, state: ContinuousState, actions: Array) -> tuple[ContinuousState, Array, Array]:
        """See `Dynamics.step`: `actions [N, 1]` are pushes, rounded to float32 and clipped to +-1."""
        xp, (position, velocity, moved) = self.xp, state
        action = xp.asarray(actions[:, 0], dtype=xp.float32)
        push = round_product(xp, POWER * xp.clip(action, -1.0, 1.0))
        slope = GRAVITY * cos(xp, xp.where(moved, _single(xp, 3.0 * position), 3.0 * position))
        velocity = velocity + (push - xp.asarray(slope, dtype=xp.float32))
        low, high, goal, speed = (float(np.float32(limit)) for limit in (*POSITIONS, CONTINUOUS_GOAL, MAX_SPEED))
        velocity = xp.clip(xp.where(moved, _single(xp, velocity), velocity), -speed, speed)
        position = xp.clip(_single(xp, position + velocity), low, high)
        velocity = xp.where((position == low) & (velocity < 0), 0.0, _single(xp, velocity))
        terminated = (position >= goal) & (velocity >= 0)
        reward = 100.0 * terminated - xp.square(xp.asarray(action, dtype=xp.float64)) * 0.1
        return ContinuousState(position, velocity, xp.ones_like(moved)), reward, terminated

    def observe(self, state: ContinuousState) -> Array:
        """See `Dynamics.observe`."""
        return self.xp.asarray(self.xp.stack((state.position, state.velocity), -1), dtype=self.xp.float32)


def _starts(xp: Any, words: Array) -> Array:
    low, high = STARTS
    return low + (high - low) * noise.uniform(xp, words[:, 0], xp.float64)


def _single(xp: Any, array: Array) -> Array:
    """`array` rounded to float32 values, in float64."""
    return xp.asarray(xp.asarray(array, dtype=xp.float32), dtype=xp.float64)
