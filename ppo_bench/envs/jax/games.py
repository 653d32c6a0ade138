"""Turn-based games of the package pgx in JAX, with a row for each player (ppo_bench/envs/turns.py)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ppo_bench.envs.base import NO_LIMIT, EnvStep, ResetResult, Task
from ppo_bench.envs.dynamics.base import EnvState
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.jax.pgx_games import PgxGames, PgxState
from ppo_bench.envs.turns import get_num_games, make_player_inputs, make_player_steps, require_players


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

    def reset(self, seeds: Sequence[int]) -> ResetResult:
        """See `GraphEnv.reset`."""
        result = super().reset(seeds[:: self.players])
        game = result.state.dynamics.game
        policy_input = make_player_inputs(
            jnp, self.players, result.policy_input.obs, game.current_player, game.legal_action_mask
        )
        return result._replace(policy_input=policy_input)

    def step(self, state: EnvState, actions: jax.Array) -> tuple[EnvState, EnvStep]:
        """See `ResetResult.step`."""
        state, step = super().step(state, actions.reshape(-1, self.players))
        step = step._replace(reward=step.reward.reshape(-1), raw_reward=step.raw_reward.reshape(-1))
        game = state.dynamics.game
        return state, make_player_steps(jnp, self.players, step, game.current_player, game.legal_action_mask)
