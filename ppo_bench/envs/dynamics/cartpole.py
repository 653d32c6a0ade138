"""CartPole-v1, with the roundings of gymnasium's version (Barto, Sutton and Anderson 1983).

The pole is unstable: over the 500 steps of an episode an error grows by a factor of 10^16, so that only equal roundings
give equal trajectories (ppo_bench/envs/dynamics/rounding.py). On a CPU the trajectories are equal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.envs.dynamics.rounding import cos, divisor, round_product, sin
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = POLE_MASS + 1.0
HALF_LENGTH = 0.5
POLE_MASS_LENGTH = POLE_MASS * HALF_LENGTH
FORCE = 10.0
SECONDS = 0.02
ANGLE_LIMIT = 12 * 2 * math.pi / 360
POSITION_LIMIT = 2.4
START_LIMIT = 0.05


class CartPoleState(NamedTuple):
    """Position of the cart, angle of the pole from upright in radians, and their velocities; `[N]` float64 each."""

    x: Array
    x_dot: Array
    theta: Array
    theta_dot: Array


class CartPole(PortableDynamics):
    """`Dynamics` of CartPole-v1; the reward is 1 for every step."""

    time_limit = 500
    short_steps = True
    num_words = 4

    def __init__(self) -> None:
        high = np.array([POSITION_LIMIT * 2, np.inf, ANGLE_LIMIT * 2, np.inf], np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, words: Array) -> CartPoleState:
        """See `Dynamics.reset`: uniform within +-0.05."""
        values = (2.0 * noise.uniform(self.xp, words, self.xp.float64) - 1.0) * START_LIMIT
        return CartPoleState(*values.T)

    def step(self, state: CartPoleState, actions: Array) -> tuple[CartPoleState, Array, Array]:
        """See `Dynamics.step`: action 1 pushes to the right, 0 to the left."""
        xp, (x, x_dot, theta, theta_dot) = self.xp, state
        total_mass = divisor(xp, TOTAL_MASS)
        force = xp.where(actions == 1, FORCE, -FORCE)
        cosine, sine = cos(xp, theta), sin(xp, theta)
        temp = (force + round_product(xp, POLE_MASS_LENGTH * xp.square(theta_dot) * sine)) / total_mass
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * xp.square(cosine) / total_mass)
        theta_acc = (round_product(xp, GRAVITY * sine) - round_product(xp, cosine * temp)) / inertia
        x_acc = temp - POLE_MASS_LENGTH * theta_acc * cosine / total_mass
        rates = (x_dot, x_acc, theta_dot, theta_acc)
        moved = CartPoleState(
            *(old + round_product(xp, SECONDS * rate) for old, rate in zip(state, rates, strict=True))
        )
        terminated = (xp.abs(moved.x) > POSITION_LIMIT) | (xp.abs(moved.theta) > ANGLE_LIMIT)
        return moved, xp.ones_like(x), terminated

    def observe(self, state: CartPoleState) -> Array:
        """See `Dynamics.observe`."""
        return self.xp.asarray(self.xp.stack(tuple(state), -1), dtype=self.xp.float32)
