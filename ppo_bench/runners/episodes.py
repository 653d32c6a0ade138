"""Episode returns and lengths, by one fold for every backend and framework."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppo_bench.runners.base import Episode


class Totals(NamedTuple):
    """Return and length so far of the episode in progress in each environment; `[N]` float64 and int64."""

    returns: np.ndarray
    lengths: np.ndarray


def no_totals(num_envs: int) -> Totals:
    """Totals of environments that have just been reset."""
    return Totals(np.zeros(num_envs), np.zeros(num_envs, np.int64))


def fold_episodes(
    totals: Totals, raw_rewards: np.ndarray, episode_over: np.ndarray, real: np.ndarray
) -> tuple[Totals, list[Episode]]:
    """The totals after a rollout, and its finished episodes in the order of their ends.

    All `[T, N]`: unclipped rewards, flags of episodes' ends, and `real`, true where a step is not a reset.
    """
    num_envs = raw_rewards.shape[1]
    rewards = np.where(real, raw_rewards, 0.0).astype(np.float64)
    returns = totals.returns + np.cumsum(rewards, axis=0)
    lengths = totals.lengths + np.cumsum(real, axis=0)
    base_returns, base_lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    episodes = []
    for step, env in np.argwhere(episode_over & real):
        episode_return = returns[step, env] - base_returns[env]
        length = lengths[step, env] - base_lengths[env]
        episodes.append(Episode(int(step + 1) * num_envs, int(env), float(episode_return), int(length)))
        base_returns[env], base_lengths[env] = returns[step, env], lengths[step, env]
    return Totals(returns[-1] - base_returns, lengths[-1] - base_lengths), episodes
