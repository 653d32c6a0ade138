"""Opponents with a known policy: uniform among legal actions, or perfect in games that are small enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Seen, Task
from ppo_bench.mathematics.arrays import Arrays, Tree
from ppo_bench.runs import tic_tac_toe
from ppo_bench.runs.play import gumbel_of_step

Policy = Callable[[Seen, np.ndarray], np.ndarray]
"""Probabilities `[N, A]`, from what the rows see and whether each moved first in its game, `[N]` bool."""


@dataclass(frozen=True)
class Opponent:
    """A `Player` that samples its actions from a known policy."""

    policy: Policy
    seed: int

    def carry(self, num_envs: int) -> Arrays:
        """See `Player.carry`: whether each row moved first."""
        return {"begins": np.zeros(num_envs, bool)}

    def act(self, t: int, seen: Seen, start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
        """See `Player.act`."""
        begins = np.where(start, True if seen.acts is None else seen.acts, carry["begins"])
        probabilities = self.policy(seen, begins)
        with np.errstate(divide="ignore"):
            logits = np.log(probabilities)
        actions: np.ndarray = (logits + gumbel_of_step(self.seed, t, *logits.shape)).argmax(-1)
        return actions, {"begins": begins}


def uniform(action_space: Any) -> Policy:
    """The policy that is uniform among legal actions. Raises `ConfigError` unless an action is one discrete choice."""
    choices = getattr(action_space, "n", None)
    if choices is None or action_space.shape != ():
        raise ConfigError("against=random is for games whose actions are one choice each")

    def policy(seen: Seen, begins: np.ndarray) -> np.ndarray:
        legal = np.ones((len(begins), int(choices))) if seen.legal is None else np.asarray(seen.legal, float)
        return legal / legal.sum(-1, keepdims=True)

    return policy


BET = np.array([[1 / 3, 0, 1], [1 / 3, 0, 1]])
"""Probability of a bet by card, jack to king, before any bet: for the first to move and for the second."""
CALL = np.array([[0, 2 / 3, 1], [0, 1 / 3, 1]])
"""Probability of a call by card, jack to king, after a bet: for the first to move and for the second."""


def kuhn(seen: Seen, begins: np.ndarray) -> np.ndarray:
    """A `Policy`: an equilibrium of Kuhn's poker (Kuhn 1950), with a value of -1/18 for the first to move.

    An observation `[7]` is one-hot: 3 numbers for the card, 2 for the player's own chips beyond the ante (none or one)
    and 2 for the other player's.
    """
    card, second, called = seen.obs[:, :3].argmax(-1), (~begins).astype(int), seen.obs[:, 6]
    chance = np.where(called, CALL[second, card], BET[second, card])
    return np.stack([chance, 1.0 - chance], -1)  # action 0 bets or calls, 1 passes


PERFECT: dict[str, Policy] = {
    **dict.fromkeys(("TicTacToe-v1", "tic_tac_toe"), tic_tac_toe.perfect),
    **dict.fromkeys(("KuhnPoker-v1", "kuhn_poker"), kuhn),
}


def perfect(task: Task) -> Policy:
    """The perfect policy for a game. Raises `ConfigError` if the game is too large."""
    if task.id not in PERFECT:
        raise ConfigError(
            f"against=perfect: {task.id} is too large to be played perfectly; that is for {', '.join(PERFECT)}"
        )
    return PERFECT[task.id]
