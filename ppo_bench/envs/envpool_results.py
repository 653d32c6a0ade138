"""Results of EnvPool's pools, arrays of NumPy or JAX, in the layout of this project's environments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppo_bench.envs.base import Step
from ppo_bench.envs.turns import step_of_rows
from ppo_bench.envs.vectors import Vectors


def of_movers(actions: np.ndarray, acts: np.ndarray, players: int) -> np.ndarray:
    """The actions `[G]` that EnvPool takes: for each of the G games, the action of the row that acts."""
    rows = np.arange(0, len(actions), players) + acts.reshape(-1, players).argmax(1)
    return actions[rows]


def in_order(games: np.ndarray, array: np.ndarray) -> np.ndarray:
    """`array`, with G games or the players of G games along axis 0, sorted by the games' numbers `games [G]`. EnvPool
    returns games of several players in the order in which its threads finish."""
    by_game = array.reshape(len(games), -1, *array.shape[1:])
    return by_game[np.argsort(games)].reshape(array.shape)


class Shown(NamedTuple):
    """The layout of a pool's results, arrays of NumPy or JAX."""

    vectors: Vectors
    players: int
    mask: str | None
    """The dictionary with the mask of legal choices: "info", "obs", or None if there is no mask."""

    def arranged(self, obs: Any) -> Any:
        """Observations as one array."""
        return obs if self.vectors.as_given else self.vectors(obs)

    def turns(self, obs: Any, info: dict[str, Any]) -> tuple[Any, Any]:
        """The number of the player to move, `[G]`, and that player's legal choices, `[G, A]`."""
        legal = obs["action_mask"] if self.mask == "obs" else info["legal_action_mask"]
        return info.get("current_player", legal[:, 0] * 0), legal


def mask_of(spec: Any) -> str | None:
    """See `Shown.mask`."""
    arrays, actions = spec.state_array_spec, spec.gymnasium_action_space
    if "info:legal_action_mask" in arrays:
        return "info"
    shape = list(arrays["obs:action_mask"].shape) if "obs:action_mask" in arrays else []
    return "obs" if shape and shape == [getattr(actions, "n", None)] else None


def as_step(
    shown: Shown,
    resets: Any,
    obs: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    info: dict[str, Any],
) -> Step:
    """The `Step` from a pool's results, arrays of NumPy or JAX; `resets [N]` marks reset steps."""
    turns = shown.turns(obs, info) if shown.mask else None
    obs = shown.arranged(obs)
    reward = reward * ~resets  # some dm_control tasks return the reward of the first state at a reset step
    if "lives" in info:  # Atari: `terminated` includes lost lives, info["terminated"] is only the end of the game
        # It is also set where a game ends at the time limit, which EnvPool calls truncated (ppo_bench/envs/limits.py).
        game_over = info["terminated"] != 0
        terminated, truncated = terminated | game_over, truncated & ~game_over
        return Step(obs, reward, terminated, truncated, game_over | truncated, info["reward"])
    step = Step(obs, reward, terminated, truncated, terminated | truncated, reward)
    return step_of_rows(reward.__array_namespace__(), shown.players, step, *turns) if turns else step
