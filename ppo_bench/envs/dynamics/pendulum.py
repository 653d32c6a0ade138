"""Pendulum-v1, with the roundings of gymnasium's version (ppo_bench/envs/dynamics/rounding.py)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.envs.dynamics.rounding import cos, round_product, sin
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

GRAVITY = 10.0
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
SECONDS = 0.05
START_LIMITS = (math.pi, 1.0)


class PendulumState(NamedTuple):
    """Angle from upright in radians, not wrapped, and angular velocity; `[N]` float64 each."""

    theta: Array
    theta_dot: Array


class Pendulum(PortableDynamics):
    """`Dynamics` of Pendulum-v1, which never terminates.

    The reward is minus a weighted sum of the squared angle, the squared velocity and the squared torque.
    """

    time_limit = 200
    short_steps = True
    num_words = 2

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)

    def reset(self, words: Array) -> PendulumState:
        """See `Dynamics.reset`: the angle is uniform in +-pi, the velocity in +-1."""
        values = 2.0 * noise.uniform(self.xp, words, self.xp.float64) - 1.0
        return PendulumState(*(part * limit for part, limit in zip(values.T, START_LIMITS, strict=True)))

    def step(self, state: PendulumState, actions: Array) -> tuple[PendulumState, Array, Array]:
        """See `Dynamics.step`: `actions [N, 1]` are torques, clipped to +-2 in their own precision."""
        xp, (theta, theta_dot) = self.xp, state
        torque = xp.clip(actions[:, 0], -MAX_TORQUE, MAX_TORQUE)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        squares = round_product(xp, xp.square(angle)) + round_product(xp, 0.1 * xp.square(theta_dot))
        acceleration = round_product(xp, 3 * GRAVITY / 2 * sin(xp, theta)) + round_product(xp, 3.0 * torque)
        theta_dot = xp.clip(theta_dot + round_product(xp, acceleration * SECONDS), -MAX_SPEED, MAX_SPEED)
        moved = PendulumState(theta + round_product(xp, theta_dot * SECONDS), theta_dot)
        return moved, -(squares + 0.001 * xp.square(torque)), xp.zeros_like(theta, dtype=xp.bool)

    def observe(self, state: PendulumState) -> Array:
        """See `Dynamics.observe`."""
        xp, (theta, theta_dot) = self.xp, state
        return xp.asarray(xp.stack((cos(xp, theta), sin(xp, theta), theta_dot), -1), dtype=xp.float32)
