"""Games of turns: their players are rows, of NumPy or JAX.

A game of P players is P rows, in order: rows `P g` to `P g + P - 1` are game `g`. They begin and end together, and one
of them is to move. The others pass: what they do does not count, and every choice is legal.
"""

from __future__ import annotations

from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Seen, Step, Task


def games_of(task: Task) -> int:
    """How many games the rows of a task are. Raises `ConfigError` if the players of one would be missing."""
    if task.num_envs % task.players:
        raise ConfigError(
            f"ppo.num_envs={task.num_envs}: {task.id} has a row for each of env.players={task.players}; "
            f"choose a multiple of {task.players}"
        )
    return task.num_envs // task.players


def require_players(task: Task, players: int) -> None:
    """Raise `ConfigError` unless the task is of as many players as the game of its id has."""
    if task.players != players:
        game = f"a game of {players} players" if players > 1 else "for one player"
        raise ConfigError(f"env.players={task.players}: {task.id} is {game}; set env.players={players}")


def seen_by_rows(xp: Any, players: int, obs: Any, turn: Any, legal: Any, over: Any = None) -> Seen:
    """What the rows see: `obs [G P, ...]`, from `turn [G]`, the player to move, and `legal [G, A]`, what that one may
    do; nobody moves where the game is `over [G]`."""
    acts = turn[:, None] == xp.arange(players)
    if over is not None:
        acts = acts & ~over[:, None]
    acts = acts.reshape(-1)
    return Seen(obs, acts, xp.repeat(legal, players, 0) | ~acts[:, None])


def step_of_rows(xp: Any, players: int, step: Step, turn: Any, legal: Any) -> Step:
    """A step of G games by rows; of `step` flags are `[G]`, observations and rewards `[G P, ...]`."""
    flags = {name: xp.repeat(getattr(step, name), players) for name in ("terminated", "truncated", "episode_over")}
    seen = seen_by_rows(xp, players, step.obs, turn, legal, step.terminated | step.truncated)
    return step._replace(**flags, acts=seen.acts, legal=seen.legal)
