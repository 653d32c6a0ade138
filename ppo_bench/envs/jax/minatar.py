"""The MinAtar games in JAX, as pgx writes them (Young and Tian 2019; Koyamada et al. 2023).

They are version 1 of the games: the actions that matter, a tenth of which the game replaces by the one before. pgx's
`step` knows neither seeds nor resets; both are those of every environment written in JAX.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pgx
from gymnasium import spaces


class PgxState(NamedTuple):
    """Where N games stand."""

    game: Any
    """pgx's own state, a pytree of arrays `[N, ...]`."""
    key: jax.Array
    """`[N, 2]` uint32, of this episode; what is random in a step follows from it and from the steps before."""


class MinAtar:
    """A `Dynamics`; an observation is one 10 x 10 image of bool for each kind of object."""

    time_limit = 10_000
    """MinAtar's games have none, and good play need not end; Freeway ends itself after 2,500."""
    num_words = 2

    def __init__(self, env_id: str) -> None:
        with jax.enable_x64(False):  # as pgx is written, whose constants are made on the way
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
    """JAX's own keys, from words `[N, 2]` uint32."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")
