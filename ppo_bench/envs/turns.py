"""Turn-based games: each player has a row of its own, in arrays of NumPy or JAX.

A game of P players has P consecutive rows: rows `P g` to `P g + P - 1` belong to game `g`. They begin and end together.
One of them is to move. The others pass: their actions are ignored, and every choice is legal.
"""

from __future__ import annotations

from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import EnvStep, PolicyInput, Task


def get_num_games(task: Task) -> int:
    """Number of games of a task, G = N / P. Raises `ConfigError` if P does not divide N."""
    if task.num_envs % task.players:
        raise ConfigError(
            f"ppo.num_envs={task.num_envs}: {task.id} has a row for each of env.players={task.players}; "
            f"choose a multiple of {task.players}"
        )
    return task.num_envs // task.players


def require_players(task: Task, players: int) -> None:
    """Raise `ConfigError` unless `task.players` equals `players`, the number of players of the game."""
    if task.players != players:
        game = f"a game of {players} players" if players > 1 else "for one player"
        raise ConfigError(f"env.players={task.players}: {task.id} is {game}; set env.players={players}")


def make_player_inputs(xp: Any, players: int, obs: Any, turn: Any, action_mask: Any, over: Any = None) -> PolicyInput:
    """The policy's inputs for G games of P players.

    `obs [G P, ...]` are the observations of the rows, `turn [G]` the player to move, and `action_mask [G, A]` that
    player's legal choices. No player is to move in games that are `over [G]`.
    """
    policy_mask = turn[:, None] == xp.arange(players)
    if over is not None:
        policy_mask = policy_mask & ~over[:, None]
    policy_mask = policy_mask.reshape(-1)
    return PolicyInput(obs, policy_mask, xp.repeat(action_mask, players, 0) | ~policy_mask[:, None])


def make_player_steps(xp: Any, players: int, step: EnvStep, turn: Any, action_mask: Any) -> EnvStep:
    """The `EnvStep` of G P rows from a step of G games, whose flags are `[G]`, observations and rewards `[G P, ...]`.

    `turn` and `action_mask` are as in `make_player_inputs`.
    """
    flags = {name: xp.repeat(getattr(step, name), players) for name in ("terminated", "truncated", "episode_over")}
    policy_input = make_player_inputs(xp, players, step.obs, turn, action_mask, step.terminated | step.truncated)
    return step._replace(**flags, policy_mask=policy_input.policy_mask, action_mask=policy_input.action_mask)
