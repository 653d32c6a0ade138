"""CartPole-v1 in JAX, with the roundings of gymnasium's version (Barto, Sutton and Anderson 1983).

The pole is unstable: over the 500 steps of an episode an error grows by a factor of 10^16, so that only equal roundings
give equal trajectories (ppo_bench/envs/jax/rounding.py). On a CPU the trajectories are equal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.jax.rounding import divisor, rounded
from ppo_bench.mathematics import noise

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

    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array


class CartPole:
    """`Dynamics` of CartPole-v1; the reward is 1 for every step."""

    time_limit = 500
    short_steps = True
    num_words = 4

    def __init__(self) -> None:
        high = np.array([POSITION_LIMIT * 2, np.inf, ANGLE_LIMIT * 2, np.inf], np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, words: jax.Array) -> CartPoleState:
        """See `Dynamics.reset`: uniform within +-0.05."""
        values = (2.0 * noise.uniform(jnp, words, jnp.float64) - 1.0) * START_LIMIT
        return CartPoleState(*values.T)

    def step(self, state: CartPoleState, actions: jax.Array) -> tuple[CartPoleState, jax.Array, jax.Array]:
        """See `Dynamics.step`: action 1 pushes to the right, 0 to the left."""
        x, x_dot, theta, theta_dot = state
        total_mass = divisor(TOTAL_MASS)
        force = jnp.where(actions == 1, FORCE, -FORCE)
        cos, sin = jnp.cos(theta), jnp.sin(theta)
        temp = (force + rounded(POLE_MASS_LENGTH * jnp.square(theta_dot) * sin)) / total_mass
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * jnp.square(cos) / total_mass)
        theta_acc = (rounded(GRAVITY * sin) - rounded(cos * temp)) / inertia
        x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / total_mass
        rates = (x_dot, x_acc, theta_dot, theta_acc)
        moved = CartPoleState(*(old + rounded(SECONDS * rate) for old, rate in zip(state, rates, strict=True)))
        terminated = (jnp.abs(moved.x) > POSITION_LIMIT) | (jnp.abs(moved.theta) > ANGLE_LIMIT)
        return moved, jnp.ones_like(x), terminated

    def observe(self, state: CartPoleState) -> jax.Array:
        """See `Dynamics.observe`."""
        return jnp.stack(state, axis=-1).astype(jnp.float32)
