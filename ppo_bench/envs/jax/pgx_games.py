"""Games of the package pgx in JAX (Koyamada et al. 2023), whose `step` `DynamicsEnv` calls, with autoreset."""

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


class PgxGames:
    """The part that all `Dynamics` of N games of pgx share. Pgx expects 32-bit types, also for its own constants."""

    num_words = 2

    def __init__(self, env_id: str) -> None:
        with jax.enable_x64(False):
            self._game = pgx.make(env_id)
            shapes = jax.eval_shape(self._game.init, jax.random.key(0))
        self.observation_space: spaces.Box[Any] = spaces.Box(0, 1, shapes.observation.shape, np.bool_)
        self.action_space = spaces.Discrete(shapes.legal_action_mask.size)

    def reset(self, words: jax.Array) -> PgxState:
        """See `Dynamics.reset`."""
        key = jax.lax.bitcast_convert_type(words, jnp.uint32)
        with jax.enable_x64(False):
            return PgxState(jax.vmap(self._game.init)(_keys_of(key)), key)

    def move(self, state: PgxState, moves: jax.Array) -> PgxState:
        """The state after one move in each game, integers `[N]`."""
        with jax.enable_x64(False):
            keys = jax.vmap(jax.random.fold_in)(_keys_of(state.key), state.game._step_count + 1)
            return PgxState(jax.vmap(self._game.step)(state.game, moves.astype(jnp.int32), keys), state.key)


def _keys_of(words: jax.Array) -> jax.Array:
    """JAX random keys `[N]`, from words `[N, 2]` uint32."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")
