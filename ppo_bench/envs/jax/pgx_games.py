"""Games of the package pgx in JAX (Koyamada et al. 2023), whose `step` `DynamicsEnv` calls, with autoreset.

The MinAtar games (Young and Tian 2019) are version 1 of the games: with the minimal action sets, and sticky actions of
probability 0.1. Turn-based games have a row for each player (ppo_bench/envs/turns.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pgx
from gymnasium import spaces

from ppo_bench.envs.base import NO_LIMIT, EnvStep, PolicyInput, Task
from ppo_bench.envs.dynamics.base import EnvState
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.turns import get_num_games, make_player_inputs, make_player_steps, require_players


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


class BoardGame(PgxGames):
    """`Dynamics` of G games of P players: actions and rewards are `[G, P]`, observations `[G P, ...]`."""

    time_limit = NO_LIMIT

    @property
    def players(self) -> int:
        """Number of players of a game."""
        return int(self._game.num_players)

    def step(self, state: PgxState, actions: jax.Array) -> tuple[PgxState, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        state = self.move(state, jnp.take_along_axis(actions, state.game.current_player[:, None], 1)[:, 0])
        return state, state.game.rewards, state.game.terminated

    def observe(self, state: PgxState) -> jax.Array:
        """See `Dynamics.observe`."""
        with jax.enable_x64(False), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # pgx deprecates the views of other players
            observe_all = jax.vmap(jax.vmap(self._game.observe, (None, 0)), (0, None))
            observations = observe_all(state.game, jnp.arange(self.players, dtype=jnp.int32))
            return observations.reshape(-1, *observations.shape[2:])


class JaxGames(DynamicsEnv):
    """A `GraphEnv` of the G games of a task, in G P rows."""

    masks_actions = True

    def __init__(self, task: Task) -> None:
        board = BoardGame(task.id)
        require_players(task, board.players)
        super().__init__(board, get_num_games(task))
        self.num_envs, self.players = task.num_envs, task.players

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> tuple[EnvState, PolicyInput]:
        """See `GraphEnv.reset`."""
        state, (obs, *_) = super().reset(xp, seeds[:: self.players])
        game = state.dynamics.game
        return state, make_player_inputs(jnp, self.players, obs, game.current_player, game.legal_action_mask)

    def step(self, state: EnvState, actions: jax.Array) -> tuple[EnvState, EnvStep]:
        """See `GraphEnv.step`."""
        state, step = super().step(state, actions.reshape(-1, self.players))
        step = step._replace(reward=step.reward.reshape(-1), raw_reward=step.raw_reward.reshape(-1))
        game = state.dynamics.game
        return state, make_player_steps(jnp, self.players, step, game.current_player, game.legal_action_mask)
