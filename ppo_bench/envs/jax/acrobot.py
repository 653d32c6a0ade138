"""Acrobot-v1 in JAX, with the roundings of gymnasium's version (Sutton 1996; dynamics of Sutton and Barto's book).

It has two links, and only the joint between them is actuated. The motion is chaotic, so that only equal roundings give
equal trajectories (ppo_bench/envs/jax/rounding.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.jax.rounding import rounded, squared
from ppo_bench.mathematics import noise

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

    theta1: jax.Array
    theta2: jax.Array
    theta1_dot: jax.Array
    theta2_dot: jax.Array


class Acrobot:
    """`Dynamics` of Acrobot-v1; the reward is -1 per step, and 0 for the step that swings the tip above the line."""

    time_limit = 500
    num_words = 4

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, 1.0, 1.0, *MAX_VELOCITIES], np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, words: jax.Array) -> AcrobotState:
        """See `Dynamics.reset`: uniform within +-0.1, rounded to float32 as in gymnasium."""
        values = (2.0 * noise.uniform(jnp, words, jnp.float64) - 1.0) * START_LIMIT
        return AcrobotState(*values.T.astype(jnp.float32).astype(jnp.float64))

    def step(self, state: AcrobotState, actions: jax.Array) -> tuple[AcrobotState, jax.Array, jax.Array]:
        """See `Dynamics.step`: actions 0, 1 and 2 apply the torque -1, 0 and 1 between the links."""
        torque = actions.astype(jnp.float64) - 1.0
        k1 = _rates(state, torque)
        k2 = _rates(_along(state, SECONDS / 2.0, k1), torque)
        k3 = _rates(_along(state, SECONDS / 2.0, k2), torque)
        k4 = _rates(_along(state, SECONDS, k3), torque)
        mean = AcrobotState(*(a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)))
        theta1, theta2, *velocities = _along(state, SECONDS / 6.0, mean)
        limited = (jnp.clip(v, -limit, limit) for v, limit in zip(velocities, MAX_VELOCITIES, strict=True))
        moved = AcrobotState(_wrapped(theta1), _wrapped(theta2), *limited)
        terminated = -jnp.cos(moved.theta1) - jnp.cos(moved.theta2 + moved.theta1) > 1.0
        return moved, jnp.where(terminated, 0.0, -1.0), terminated

    def observe(self, state: AcrobotState) -> jax.Array:
        """See `Dynamics.observe`."""
        theta1, theta2, *velocities = state
        angles = (jnp.cos(theta1), jnp.sin(theta1), jnp.cos(theta2), jnp.sin(theta2))
        return jnp.stack([*angles, *velocities], axis=-1).astype(jnp.float32)


def _rates(state: AcrobotState, torque: jax.Array) -> AcrobotState:
    """Time derivatives of the state. Gymnasium's factors of 1 and of powers of 2 round nothing and are left out."""
    theta1, theta2, theta1_dot, theta2_dot = state
    cos2, sin2 = jnp.cos(theta2), jnp.sin(theta2)
    d1 = rounded(rounded(CENTRE**2 + rounded(1.0 + CENTRE**2 + cos2)) + 1.0) + 1.0
    d2 = rounded(CENTRE**2 + CENTRE * cos2) + 1.0
    phi2 = rounded(CENTRE * GRAVITY * jnp.cos(rounded(theta1 + theta2) - math.pi / 2))
    weight1 = rounded((CENTRE + 1.0) * GRAVITY * jnp.cos(theta1 - math.pi / 2))
    phi1 = -rounded(CENTRE * squared(theta2_dot) * sin2) - rounded(theta2_dot * theta1_dot * sin2) + weight1 + phi2
    pull = torque + rounded(d2 / d1 * phi1) - rounded(CENTRE * squared(theta1_dot) * sin2) - phi2
    theta2_acc = pull / (CENTRE**2 + 1.0 - squared(d2) / d1)
    theta1_acc = -(rounded(d2 * theta2_acc) + phi1) / d1
    return AcrobotState(theta1_dot, theta2_dot, theta1_acc, theta2_acc)


def _along(state: AcrobotState, seconds: float, rates: AcrobotState) -> AcrobotState:
    return AcrobotState(*(x + rounded(seconds * rate) for x, rate in zip(state, rates, strict=True)))


def _wrapped(angle: jax.Array) -> jax.Array:
    """`angle` wrapped to +-pi by one turn at a time, as in gymnasium."""
    for _ in range(TURNS):
        angle = jnp.where(angle > math.pi, angle - 2 * math.pi, angle)
        angle = jnp.where(angle < -math.pi, angle + 2 * math.pi, angle)
    return angle
