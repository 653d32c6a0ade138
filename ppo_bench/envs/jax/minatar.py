"""The MinAtar games of the package pgx in JAX (Young and Tian 2019; Koyamada et al. 2023).

They are version 1 of the games: with the minimal action sets, and sticky actions of probability 0.1. This module calls
pgx's `step` directly; `JaxEnv` adds autoreset and seeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pgx
from gymnasium import spaces


class PgxState(NamedTuple):
    """State of N games."""

    game: Any
    """State of pgx, a pytree of arrays `[N, ...]`."""
    key: jax.Array
    """Random keys of the current episodes, `[N, 2]` uint32. Randomness in a step follows from the key and the number
    of the step."""


class MinAtar:
    """`Dynamics` of a MinAtar game; an observation has a 10 x 10 channel of bool for each kind of object."""

    time_limit = 10_000
    """A limit of this project's own, since good play may never end. Freeway itself ends after 2,500 steps."""
    num_words = 2

    def __init__(self, env_id: str) -> None:
        with jax.enable_x64(False):  # pgx expects 32-bit types, also for the constants that it makes here
            self._game = pgx.make(env_id)
            shapes = jax.eval_shape(self._game.init, jax.random.key(0))
        self.observation_space: spaces.Box[Any] = spaces.Box(0, 1, shapes.observation.shape, np.bool_)
        self.action_space = spaces.Discrete(shapes.legal_action_mask.size)

    def reset(self, words: jax.Array) -> PgxState:
        """See `Dynamics.reset`."""
        key = jax.lax.bitcast_convert_type(words, jnp.uint32)
        with jax.enable_x64(False):
            return PgxState(jax.vmap(self._game.init)(keys_of(key)), key)

    def step(self, state: PgxState, actions: jax.Array) -> tuple[PgxState, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        with jax.enable_x64(False):
            keys = jax.vmap(jax.random.fold_in)(keys_of(state.key), state.game._step_count + 1)
            game = jax.vmap(self._game.step)(state.game, actions.astype(jnp.int32), keys)
            return PgxState(game, state.key), game.rewards[:, 0], game.terminated

    def observe(self, state: PgxState) -> jax.Array:
        """See `Dynamics.observe`."""
        return state.game.observation


def keys_of(words: jax.Array) -> jax.Array:
    """JAX random keys `[N]`, from words `[N, 2]` uint32."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")
