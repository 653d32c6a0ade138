"""Episode returns and lengths, computed by the same function for every backend and framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ppo_bench.common.errors import Failed
from ppo_bench.runners.base import Episode

NOTHING: Mapping[str, np.ndarray] = {}


class Totals(NamedTuple):
    """Return and length so far of each environment's current episode, `[N]` float64 and `[N]` int64."""

    returns: np.ndarray
    lengths: np.ndarray


def not_finite(what: str, values: np.ndarray, first: int = 0) -> Failed:
    """Error that names the first environment with non-finite `values [N, ...]`; row 0 is environment `first`."""
    row, place = np.argwhere(~np.isfinite(values).reshape(len(values), -1))[0]
    value = values.reshape(len(values), -1)[row, place]
    return Failed(f"environment {first + row} gave {what} of {value}, which is no finite number")


def no_totals(num_envs: int) -> Totals:
    """Totals of `num_envs` environments that have just been reset: zeros."""
    return Totals(np.zeros(num_envs), np.zeros(num_envs, np.int64))


class Ended(NamedTuple):
    """Episodes that ended in a rollout, in the order of their ends; arrays `[E]`."""

    steps: np.ndarray
    """Row of the rollout in which each ended."""
    envs: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray


def fold_episodes(
    totals: Totals,
    raw_rewards: np.ndarray,
    episode_over: np.ndarray,
    valid: np.ndarray,
    told: Mapping[str, np.ndarray] = NOTHING,
) -> tuple[Totals, list[Episode]]:
    """Totals after a rollout, and its finished episodes; see `folded`.

    `told` has the numbers that environments reported, by name, `[T, N]`, NaN where they reported none.
    """
    totals, ended = folded(totals, raw_rewards, episode_over, valid)
    episodes = episodes_of(ended, raw_rewards.shape[1])
    for name, numbers in told.items():
        at_end = zip(episodes, numbers[ended.steps, ended.envs].tolist(), strict=True)
        episodes = [each._replace(told={**each.told, name: x}) if math.isfinite(x) else each for each, x in at_end]
    return totals, episodes


def episodes_of(ended: Ended, num_envs: int) -> list[Episode]:
    """The episodes that ended in a rollout of `num_envs` environments, without what environments told."""
    columns = ((ended.steps + 1) * num_envs, ended.envs, ended.returns, ended.lengths)
    return list(map(Episode, *(column.tolist() for column in columns)))


def folded(
    totals: Totals, raw_rewards: np.ndarray, episode_over: np.ndarray, valid: np.ndarray
) -> tuple[Totals, Ended]:
    """Totals after a rollout, and the episodes that ended in it.

    Arguments are `[T, N]`: `raw_rewards` are not clipped or normalised, `episode_over` is true at the last step of an
    episode, and `valid` is false where a step only resets its environment.
    """
    returns = _running_sums(np.where(valid, raw_rewards, 0.0), totals.returns)
    lengths = _running_sums(valid, totals.lengths)
    steps, envs = np.nonzero(episode_over & valid)
    by_env = np.argsort(envs, kind="stable")  # groups ends by environment, in temporal order within each
    again = envs[by_env[1:]] == envs[by_env[:-1]]

    def since_last_end(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums over each finished episode, and over each current one `[N]`, from running sums `[T, N]`."""
        ends = sums[steps, envs]
        before, last = np.zeros_like(ends), np.zeros_like(sums[-1])
        before[by_env[1:]] = np.where(again, ends[by_env[:-1]], 0)
        last[envs] = ends  # with repeated indices the last assignment is kept
        return ends - before, sums[-1] - last

    (episode_returns, left_returns), (episode_lengths, left_lengths) = map(since_last_end, (returns, lengths))
    return Totals(left_returns, left_lengths), Ended(steps, envs, episode_returns, episode_lengths)


def _running_sums(steps: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Cumulative sums of `steps [T, N]` over time, starting from `before [N]`; the dtype is that of `before`."""
    sums = steps.astype(before.dtype)
    sums[0] += before
    return np.cumsum(sums, axis=0, out=sums)
