"""Games between two policies, each of which takes every seat equally often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.envs.base import Seen, VectorEnv
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.runs.play import Player, quotas


class Game(NamedTuple):
    """The outcome of a game for the first of the two policies."""

    seat: int
    """The first policy's position in the order of moves, 0 for the first to move; where all move at once, its row."""
    returned: float
    """The first policy's sum of rewards."""
    best_other: float
    """The largest sum of rewards among the other seats."""
    illegal: int
    """Number of the first policy's moves that broke the rules."""


def play_match(
    env: VectorEnv,
    players: int,
    ours: Player,
    theirs: Player,
    games: int,
    seed: int,
    stop: Sequence[int] = (),
) -> Iterator[Game]:
    """`games` whole games with `players` rows each, yielded as they end; `ours` plays one row, `theirs` the others.

    Games are numbered beforehand. In game k, `ours` takes seat `k % players`, counted from the player who moves first.
    The numbers fix which games count, so that short ones are not favoured. Ends with the first
    step after which `stop` is not empty.
    """
    boards, everyone = env.num_envs // players, np.ones(env.num_envs, bool)
    seen = env.reset(noise.env_seeds(seed, 0, env.num_envs, noise.Stream.EVALUATION_ENV_SEEDS))
    number, last = np.arange(boards), boards * quotas(games, boards)
    start, done = np.ones(env.num_envs, bool), np.zeros(env.num_envs, bool)
    our_row, t = np.zeros(boards, np.int64), 0
    returns, illegal = np.zeros((boards, players)), np.zeros(boards, np.int64)
    carries: list[Tree] = [player.carry(env.num_envs) for player in (ours, theirs)]
    while (number < last).any() and not stop:
        acts = everyone if seen.acts is None else seen.acts
        begins = acts.reshape(boards, players).argmax(1)
        our_row = np.where(start[::players], (begins + number) % players, our_row)
        is_ours = (np.arange(players) == our_row[:, None]).reshape(-1)
        (actions, carries[0]), (others, carries[1]) = (
            player.act(t, seen, start, carry) for player, carry in zip((ours, theirs), carries, strict=True)
        )
        actions = np.where(is_ours.reshape(-1, *[1] * (actions.ndim - 1)), actions, others)
        illegal += (_against_the_rules(seen, actions) & is_ours & ~done).reshape(boards, players).any(1)
        step = env.step(actions)
        returns += step.raw_reward.reshape(boards, players)
        seen, start, done, t = step.seen, done, step.terminated | step.truncated, t + 1
        for board in np.flatnonzero(step.episode_over[::players]):
            if number[board] < last[board]:
                own = returns[board, our_row[board]]
                other = np.delete(returns[board], our_row[board]).max()
                yield Game(int(number[board]) % players, float(own), float(other), int(illegal[board]))
            number[board] += boards
            returns[board], illegal[board] = 0.0, 0


def _against_the_rules(seen: Seen, actions: np.ndarray) -> np.ndarray:
    """Rows that are to move and chose an illegal action, `[N]` bool."""
    if seen.legal is None:
        return np.zeros(len(actions), bool)
    acts = True if seen.acts is None else seen.acts
    against: np.ndarray = acts & ~np.take_along_axis(seen.legal, actions[:, None], 1)[:, 0]
    return against
