"""Episode returns and lengths, computed by the same function for every backend and framework."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.runners.base import Episode


class EpisodeTotals(NamedTuple):
    """Return and length so far of each environment's current episode, `[N]` float64 and `[N]` int64."""

    returns: np.ndarray
    lengths: np.ndarray


def zero_totals(num_envs: int) -> EpisodeTotals:
    """Totals of `num_envs` environments that have just been reset: zeros."""
    return EpisodeTotals(np.zeros(num_envs), np.zeros(num_envs, np.int64))


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in a rollout; arrays `[E]`."""

    envs: np.ndarray
    steps: np.ndarray
    """Step of the rollout in which each ended, from 0."""
    returns: np.ndarray
    lengths: np.ndarray

    def reorder(self, order: np.ndarray) -> FinishedEpisodes:
        """The same episodes in the `order` of these indices."""
        return FinishedEpisodes(*(column[order] for column in self))


def accumulate_episodes(
    totals: EpisodeTotals,
    raw_rewards: np.ndarray,
    episode_over: np.ndarray,
    value_mask: np.ndarray,
    episode_info: Mapping[str, np.ndarray] | None = None,
) -> tuple[EpisodeTotals, list[Episode]]:
    """Totals after a rollout, and its finished episodes in the order of their ends.

    Arrays are `[T, N]`; see `accumulate_returns`. `episode_info` has the reported numbers, by name, NaN where they
    reported none.
    """
    totals, ended = accumulate_returns(totals, raw_rewards.T, episode_over.T, value_mask.T)
    ended = ended.reorder(np.lexsort((ended.envs, ended.steps)))
    episodes = to_episodes(ended, raw_rewards.shape[1])
    for name, numbers in (episode_info or {}).items():
        at_end = zip(episodes, numbers[ended.steps, ended.envs].tolist(), strict=True)
        episodes = [each._replace(info={**each.info, name: x}) if math.isfinite(x) else each for each, x in at_end]
    return totals, episodes


def to_episodes(ended: FinishedEpisodes, num_envs: int) -> list[Episode]:
    """The episodes that ended in a rollout of `num_envs` environments, without what environments told."""
    columns = ((ended.steps + 1) * num_envs, ended.envs, ended.returns, ended.lengths)
    return list(map(Episode, *(column.tolist() for column in columns)))


def join_episodes(parts: Sequence[Sequence[Episode]], num_envs: int) -> list[Episode]:
    """Episodes of all environments in the order of their ends, from those of equal parts of `num_envs` each."""
    joined = (
        episode._replace(env=k * num_envs + episode.env, step=episode.step * len(parts))
        for k, part in enumerate(parts)
        for episode in part
    )
    return sorted(joined, key=lambda episode: (episode.step, episode.env))


def accumulate_returns(
    totals: EpisodeTotals, raw_rewards: np.ndarray, episode_over: np.ndarray, value_mask: np.ndarray
) -> tuple[EpisodeTotals, FinishedEpisodes]:
    """Totals after a rollout, and the episodes that ended in it, environment by environment in the order of their ends.

    Arguments are `[N, T]`: `raw_rewards` are not clipped or normalised, `episode_over` is true at the last step of an
    episode, and `value_mask` is false where a step only resets its environment.
    """
    ends = episode_over & value_mask
    begins = np.ones_like(ends)  # whether a part of an episode begins: with the rollout, or after an end
    begins[:, 1:] = ends[:, :-1]
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], begins.size) - 1
    num_steps = value_mask.shape[1]
    envs, steps = np.divmod(lasts, num_steps)
    finished, goes_on = ends.reshape(-1)[lasts], firsts % num_steps == 0

    def sums(x: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of `x [N, T]` over each finished episode, and over each current one `[N]`, `before` included."""
        parts = np.add.reduceat(x.reshape(-1), firsts, dtype=before.dtype)
        parts[goes_on] += before
        left = np.zeros_like(before)
        left[envs[~finished]] = parts[~finished]
        return parts[finished], left

    episode_returns, left_returns = sums(np.where(value_mask, raw_rewards, 0), totals.returns)
    episode_lengths, left_lengths = sums(value_mask, totals.lengths)
    ended = FinishedEpisodes(envs[finished], steps[finished], episode_returns, episode_lengths)
    return EpisodeTotals(left_returns, left_lengths), ended
