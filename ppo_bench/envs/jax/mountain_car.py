"""MountainCar-v0 and MountainCarContinuous-v0 in JAX, with the roundings of gymnasium's versions (Moore 1990).

See ppo_bench/envs/jax/rounding.py.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.jax.rounding import rounded
from ppo_bench.mathematics import noise

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

    position: jax.Array
    velocity: jax.Array


class MountainCar:
    """`Dynamics` of MountainCar-v0; the reward is -1 for every step."""

    time_limit = 200
    short_steps = True
    num_words = 1

    def __init__(self) -> None:
        low, high = np.array([[POSITIONS[0], -MAX_SPEED], [POSITIONS[1], MAX_SPEED]], np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, words: jax.Array) -> MountainCarState:
        """See `Dynamics.reset`: at rest near the bottom of the valley."""
        low, high = STARTS
        position = low + (high - low) * noise.uniform(jnp, words[:, 0], jnp.float64)
        return MountainCarState(position, jnp.zeros_like(position))

    def step(self, state: MountainCarState, actions: jax.Array) -> tuple[MountainCarState, jax.Array, jax.Array]:
        """See `Dynamics.step`: actions 0, 1 and 2 push to the left, not at all, and to the right."""
        position, velocity = state
        push = rounded((actions - 1).astype(jnp.float64) * FORCE)
        velocity = velocity + (push - rounded(GRAVITY * jnp.cos(rounded(3.0 * position))))
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, *POSITIONS)
        velocity = jnp.where((position == POSITIONS[0]) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL) & (velocity >= 0)
        return MountainCarState(position, velocity), -jnp.ones_like(position), terminated

    def observe(self, state: MountainCarState) -> jax.Array:
        """See `Dynamics.observe`."""
        return jnp.stack(state, axis=-1).astype(jnp.float32)


class ContinuousState(NamedTuple):
    """Position and velocity, `[N]` float64 each, and flags `moved [N]` of the episodes after their first step.

    After the first step position and velocity are float32 values, as in gymnasium.
    """

    position: jax.Array
    velocity: jax.Array
    moved: jax.Array


class MountainCarContinuous:
    """`Dynamics` of MountainCarContinuous-v0; the reward is 100 at the goal, minus 0.1 times the squared action."""

    time_limit = 999
    short_steps = True
    num_words = 1

    def __init__(self) -> None:
        self.observation_space = MountainCar().observation_space
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, words: jax.Array) -> ContinuousState:
        """See `Dynamics.reset`: at rest near the bottom of the valley."""
        position, velocity = MountainCar().reset(words)
        return ContinuousState(position, velocity, jnp.zeros(position.shape, bool))

    def step(self, state: ContinuousState, actions: jax.Array) -> tuple[ContinuousState, jax.Array, jax.Array]:
        """See `Dynamics.step`: `actions [N, 1]` are pushes, rounded to float32 and clipped to +-1."""
        position, velocity, moved = state
        action = actions[:, 0].astype(jnp.float32)
        push = rounded(POWER * jnp.clip(action, -1.0, 1.0))
        slope = GRAVITY * jnp.cos(jnp.where(moved, _single(3.0 * position), 3.0 * position))
        velocity = velocity + (push - slope.astype(jnp.float32))
        velocity = jnp.clip(
            jnp.where(moved, _single(velocity), velocity), -np.float32(MAX_SPEED), np.float32(MAX_SPEED)
        )
        low, high = (np.float32(limit) for limit in POSITIONS)
        position = jnp.clip(_single(position + velocity), low, high)
        velocity = jnp.where((position == low) & (velocity < 0), 0.0, _single(velocity))
        terminated = (position >= np.float32(CONTINUOUS_GOAL)) & (velocity >= 0)
        reward = jnp.where(terminated, 100.0, 0.0) - jnp.square(action.astype(jnp.float64)) * 0.1
        return ContinuousState(position, velocity, jnp.ones_like(moved)), reward, terminated

    def observe(self, state: ContinuousState) -> jax.Array:
        """See `Dynamics.observe`."""
        return jnp.stack([state.position, state.velocity], axis=-1).astype(jnp.float32)


def _single(array: jax.Array) -> jax.Array:
    """`array` rounded to float32 values, in float64."""
    return array.astype(jnp.float32).astype(jnp.float64)
