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
    # `[N, T]` from here on: sums along rows that lie in one piece take half the time in wide programs.
    raw_rewards, episode_over, real = (np.ascontiguousarray(array.T) for array in (raw_rewards, episode_over, real))
    returns = np.cumsum(np.where(real, raw_rewards, 0.0).astype(np.float64), axis=1)
    lengths = np.cumsum(real.astype(np.int64), axis=1)
    returns += totals.returns[:, None]
    lengths += totals.lengths[:, None]
    envs, steps = np.nonzero(episode_over & real)
    again = envs[1:] == envs[:-1]

    def since_last_end(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of every episode that ended, and of those in progress `[N]`, from running sums `[N, T]`."""
        ends = sums[envs, steps]
        before, last = np.zeros_like(ends), np.zeros_like(sums[:, 0])
        before[1:] = np.where(again, ends[:-1], 0)
        last[envs] = ends  # an environment's last end is what stays
        return ends - before, sums[:, -1] - last

    (episode_returns, left_returns), (episode_lengths, left_lengths) = map(since_last_end, (returns, lengths))
    in_order = np.argsort(steps, kind="stable")
    columns = ((steps + 1) * num_envs, envs, episode_returns, episode_lengths)
    episodes = list(map(Episode, *(column[in_order].tolist() for column in columns)))
    return Totals(left_returns, left_lengths), episodes
