"""Perfect play of tic-tac-toe, and the results of all lines of play against a player.

Squares are bits of an integer, from the top left by rows. A position is a pair: the squares of the player to move and
those of the other player.
"""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np

from ppo_bench.envs.base import Seen
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.runs.play import Player

SQUARES = 9
FULL = 2**SQUARES - 1
ROWS = (0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124)


def wins(squares: int) -> bool:
    """Whether `squares` has three in a row."""
    return any(squares & row == row for row in ROWS)


def moves(mover: int, other: int) -> list[int]:
    """The free squares of a position."""
    return [move for move in range(SQUARES) if not (mover | other) >> move & 1]


@functools.cache
def value(mover: int, other: int) -> int:
    """Result of perfect play by both, for the player to move: 1, 0 or -1."""
    if wins(other):
        return -1
    return max((-value(other, mover | 1 << move) for move in moves(mover, other)), default=0)


def perfect(seen: Seen, begins: np.ndarray) -> np.ndarray:
    """A `Policy`: uniform over the best moves, `[N, 9]`."""
    policy = np.asarray(seen.legal, float)
    for row in np.flatnonzero(seen.acts):
        mover, other = (int(squares) for squares in _squares(seen.obs[row]))
        for move in moves(mover, other):
            policy[row, move] = -value(other, mover | 1 << move) == value(mover, other)
    return policy / policy.sum(-1, keepdims=True)


def all_lines(player: Player) -> Counter[str]:
    """Number of lines of play with each result: "wins", "draws" and "losses" of `player`.

    The opponent tries every move, and `player` makes its own. It moves first in some and second in others.
    """
    return _lines(player, begins=True) + _lines(player, begins=False)


def _lines(player: Player, begins: bool) -> Counter[str]:
    ends: Counter[str] = Counter()
    positions = [(0, 0)]  # the player's squares and the opponent's
    carry: Tree = player.carry(1)
    for t in range(SQUARES):
        acting, count = (t % 2 == 0) == begins, len(positions)
        legal = np.array(
            [[not acting or move in moves(*position) for move in range(SQUARES)] for position in positions]
        )
        seen = Seen(_observed(positions), np.full(count, acting), legal)
        actions, carry = player.act(t, seen, np.full(count, t == 0), carry)
        after, parents = [], []
        for node, (own, other) in enumerate(positions):
            for move in [int(actions[node])] if acting else moves(own, other):
                own_after, other_after = (own | 1 << move, other) if acting else (own, other | 1 << move)
                if wins(own_after if acting else other_after):
                    ends["wins" if acting else "losses"] += 1
                elif own_after | other_after == FULL:
                    ends["draws"] += 1
                else:
                    after.append((own_after, other_after))
                    parents.append(node)
        positions, carry = after, {name: array[parents] for name, array in carry.items()}
    return ends


def _squares(obs: np.ndarray) -> np.ndarray:
    """Squares of the player who sees `obs [3, 3, 2]`, and of the other player."""
    squares: np.ndarray = obs.reshape(SQUARES, 2).T.astype(np.int64) @ (1 << np.arange(SQUARES))
    return squares


def _observed(positions: list[tuple[int, int]]) -> np.ndarray:
    """Observations of the positions, `[B, 3, 3, 2]`."""
    bits = np.array(positions)[:, None] >> np.arange(SQUARES)[None, :, None] & 1
    return bits.astype(bool).reshape(-1, 3, 3, 2)
