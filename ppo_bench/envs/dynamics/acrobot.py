"""Acrobot-v1, with the roundings of gymnasium's version (Sutton 1996; dynamics of Sutton and Barto's book).

It has two links, and only the joint between them is actuated. The motion is chaotic, so that only equal roundings give
equal trajectories (ppo_bench/envs/dynamics/rounding.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.envs.dynamics.rounding import cos, round_product, sin, square
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

SECONDS = 0.2
GRAVITY = 9.8
CENTRE = 0.5
"""Distance from a joint to its link's centre of mass; lengths, masses and moments of inertia of the links are 1."""
MAX_VELOCITIES = (4 * math.pi, 9 * math.pi)
START_LIMIT = 0.1
TURNS = 6
"""Upper bound of the full turns of a joint in one step, from any state within the limits (test_jax_dynamics.py)."""


class AcrobotState(NamedTuple):
    """Angles in radians and angular velocities of the two links, `[N]` float64 each.

    The first angle is measured from the vertical below the pivot, the second from the direction of the first link.
    """

    theta1: Array
    theta2: Array
    theta1_dot: Array
    theta2_dot: Array


class Acrobot(PortableDynamics):
    """`Dynamics` of Acrobot-v1; the reward is -1 per step, and 0 for the step that swings the tip above the line."""

    time_limit = 500
    num_words = 4

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, 1.0, 1.0, *MAX_VELOCITIES], np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, words: Array) -> AcrobotState:
        """See `Dynamics.reset`: uniform within +-0.1, rounded to float32 as in gymnasium."""
        xp = self.xp
        values = (2.0 * noise.uniform(xp, words, xp.float64) - 1.0) * START_LIMIT
        return AcrobotState(*xp.asarray(xp.asarray(values.T, dtype=xp.float32), dtype=xp.float64))

    def step(self, state: AcrobotState, actions: Array) -> tuple[AcrobotState, Array, Array]:
        """See `Dynamics.step`: actions 0, 1 and 2 apply the torque -1, 0 and 1 between the links."""
        xp = self.xp
        torque = xp.asarray(actions, dtype=xp.float64) - 1.0
        k1 = _rates(xp, state, torque)
        k2 = _rates(xp, _advance(xp, state, SECONDS / 2.0, k1), torque)
        k3 = _rates(xp, _advance(xp, state, SECONDS / 2.0, k2), torque)
        k4 = _rates(xp, _advance(xp, state, SECONDS, k3), torque)
        mean = AcrobotState(*(a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)))
        theta1, theta2, *velocities = _advance(xp, state, SECONDS / 6.0, mean)
        limited = (xp.clip(v, -limit, limit) for v, limit in zip(velocities, MAX_VELOCITIES, strict=True))
        moved = AcrobotState(_wrap_angle(xp, theta1), _wrap_angle(xp, theta2), *limited)
        terminated = -cos(xp, moved.theta1) - cos(xp, moved.theta2 + moved.theta1) > 1.0
        return moved, 1.0 * terminated - 1.0, terminated

    def observe(self, state: AcrobotState) -> Array:
        """See `Dynamics.observe`."""
        xp, (theta1, theta2, *velocities) = self.xp, state
        angles = (cos(xp, theta1), sin(xp, theta1), cos(xp, theta2), sin(xp, theta2))
        return xp.asarray(xp.stack((*angles, *velocities), -1), dtype=xp.float32)


def _rates(xp: Any, state: AcrobotState, torque: Array) -> AcrobotState:
    """Time derivatives of the state. Gymnasium's factors of 1 and of powers of 2 round nothing and are left out."""
    theta1, theta2, theta1_dot, theta2_dot = state
    cos2, sin2 = cos(xp, theta2), sin(xp, theta2)
    d1 = round_product(xp, round_product(xp, CENTRE**2 + round_product(xp, 1.0 + CENTRE**2 + cos2)) + 1.0) + 1.0
    d2 = round_product(xp, CENTRE**2 + CENTRE * cos2) + 1.0
    phi2 = round_product(xp, CENTRE * GRAVITY * cos(xp, round_product(xp, theta1 + theta2) - math.pi / 2))
    weight1 = round_product(xp, (CENTRE + 1.0) * GRAVITY * cos(xp, theta1 - math.pi / 2))
    phi1 = (
        -round_product(xp, CENTRE * square(xp, theta2_dot) * sin2)
        - round_product(xp, theta2_dot * theta1_dot * sin2)
        + weight1
        + phi2
    )
    pull = torque + round_product(xp, d2 / d1 * phi1) - round_product(xp, CENTRE * square(xp, theta1_dot) * sin2) - phi2
    theta2_acc = pull / (CENTRE**2 + 1.0 - square(xp, d2) / d1)
    theta1_acc = -(round_product(xp, d2 * theta2_acc) + phi1) / d1
    return AcrobotState(theta1_dot, theta2_dot, theta1_acc, theta2_acc)


def _advance(xp: Any, state: AcrobotState, seconds: float, rates: AcrobotState) -> AcrobotState:
    return AcrobotState(*(x + round_product(xp, seconds * rate) for x, rate in zip(state, rates, strict=True)))


def _wrap_angle(xp: Any, angle: Array) -> Array:
    """`angle` wrapped to +-pi by one turn at a time, as in gymnasium."""
    turns, turn = xp.ceil((xp.abs(angle) - math.pi) / (2 * math.pi)), 2 * math.pi * xp.sign(angle)
    for done in range(TURNS):
        angle = angle - turn * xp.asarray(turns > done, dtype=xp.float64)
    return angle
