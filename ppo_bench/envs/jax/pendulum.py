"""Pendulum-v1 in JAX, with the roundings of gymnasium's version (ppo_bench/envs/jax/rounding.py)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.jax.rounding import rounded
from ppo_bench.mathematics import noise

GRAVITY = 10.0
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
SECONDS = 0.05
START_LIMITS = (math.pi, 1.0)


class PendulumState(NamedTuple):
    """Angle from upright in radians, not wrapped, and angular velocity; `[N]` float64 each."""

    theta: jax.Array
    theta_dot: jax.Array


class Pendulum:
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

    def reset(self, words: jax.Array) -> PendulumState:
        """See `Dynamics.reset`: the angle is uniform in +-pi, the velocity in +-1."""
        values = (2.0 * noise.uniform(jnp, words, jnp.float64) - 1.0) * jnp.array(START_LIMITS)
        return PendulumState(*values.T)

    def step(self, state: PendulumState, actions: jax.Array) -> tuple[PendulumState, jax.Array, jax.Array]:
        """See `Dynamics.step`: `actions [N, 1]` are torques, clipped to +-2 in their own precision."""
        theta, theta_dot = state
        torque = jnp.clip(actions[:, 0], -MAX_TORQUE, MAX_TORQUE)
        angle = jnp.mod(theta + math.pi, 2 * math.pi) - math.pi
        cost = rounded(jnp.square(angle)) + rounded(0.1 * jnp.square(theta_dot)) + 0.001 * jnp.square(torque)
        acceleration = rounded(3 * GRAVITY / 2 * jnp.sin(theta)) + rounded(3.0 * torque)
        theta_dot = jnp.clip(theta_dot + rounded(acceleration * SECONDS), -MAX_SPEED, MAX_SPEED)
        moved = PendulumState(theta + rounded(theta_dot * SECONDS), theta_dot)
        return moved, -cost, jnp.zeros(theta.shape, bool)

    def observe(self, state: PendulumState) -> jax.Array:
        """See `Dynamics.observe`."""
        return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot], axis=-1).astype(jnp.float32)
