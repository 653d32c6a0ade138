"""The MinAtar games of the package pgx in JAX (Young and Tian 2019).

They are version 1 of the games: with the minimal action sets, and sticky actions of probability 0.1.
"""

from __future__ import annotations

import jax

from ppo_bench.envs.jax.pgx_games import PgxGames, PgxState


class MinAtar(PgxGames):
    """`Dynamics` of a MinAtar game; an observation has a 10 x 10 channel of bool for each kind of object."""

    time_limit = 10_000
    """A limit of this project's own, since good play may never end. Freeway itself ends after 2,500 steps."""

    def step(self, state: PgxState, actions: jax.Array) -> tuple[PgxState, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        state = self.move(state, actions)
        return state, state.game.rewards[:, 0], state.game.terminated

    def observe(self, state: PgxState) -> jax.Array:
        """See `Dynamics.observe`."""
        return state.game.observation
