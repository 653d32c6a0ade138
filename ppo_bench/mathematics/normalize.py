"""Running normalisation of observations and rewards, and bounds of actions, over any of NumPy, PyTorch and JAX.

State goes in and comes out. Statistics start as gymnasium's wrappers start theirs (mean 0, variance 1, weight 1e-4).
Those of observations learn from all of them, an episode's last among them, as gymnasium's do; those of returns leave
out the steps that only reset an environment. Keep them in float64 where that is to be had: in float32 the weight of a
single entry is lost after 2^24 of them. Source: Huang et al. 2022, "The 37 Implementation Details of PPO", continuous
details 5 to 8; the parallel update is Chan et al. 1979.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError

Array = Any  # an array of whichever namespace `xp` is

EPSILON = 1e-8
INITIAL_COUNT = 1e-4


class RunningStats(NamedTuple):
    """`mean` and `var` of the shape of one entry, and the scalar weight `count` behind them."""

    mean: Array
    var: Array
    count: Array


def stats_in(state: Mapping[str, Array], of: str) -> RunningStats:
    """The statistics `normalize.<of>.*` in `state`, of observations ("obs") or of discounted returns ("return")."""
    return RunningStats(*(state[f"normalize.{of}.{field}"] for field in RunningStats._fields))


def named_stats(stats: RunningStats, of: str) -> dict[str, Array]:
    """`stats` by the names under which `stats_in` finds them."""
    return {f"normalize.{of}.{field}": value for field, value in zip(RunningStats._fields, stats, strict=True)}


class Moments(NamedTuple):
    """Of some entries: their `mean`, the sum `m2` of their squared distances from it, and how many they are."""

    mean: Array
    m2: Array
    count: Array


def moments(xp: Any, batch: Array, mask: Array | None = None) -> Moments:
    """Moments of the rows of `batch [N, ...]`, or of those where `mask`, `[N]` or of the same shape, is 1."""
    if mask is None:
        count = float(batch.shape[0])
        mean = xp.sum(batch, 0) / count
        return Moments(mean, xp.sum(xp.square(batch - mean), 0), count)
    weight = mask if mask.ndim == batch.ndim else mask.reshape((-1,) + (1,) * (batch.ndim - 1))
    count = xp.sum(mask, 0)
    mean = xp.sum(batch * weight, 0) / xp.clip(count, 1.0, None)
    return Moments(mean, xp.sum(xp.square(batch - mean) * weight, 0), count)


def merge(stats: RunningStats, seen: Moments) -> RunningStats:
    """Statistics that have also seen the entries of `seen`; arrays or plain numbers."""
    count = stats.count + seen.count
    share = seen.count / count
    delta = seen.mean - stats.mean
    m2 = stats.var * stats.count + seen.m2 + delta * delta * (stats.count * share)
    return RunningStats(stats.mean + delta * share, m2 / count, count)


def update_stats(xp: Any, stats: RunningStats, batch: Array, mask: Array | None = None) -> RunningStats:
    """Statistics that have also seen the rows of `batch [N, ...]`, or those whose `mask [N]` is 1."""
    return merge(stats, moments(xp, batch, mask))


def update_about_mean(xp: Any, stats: RunningStats, batch: Array, mask: Array) -> RunningStats:
    """`update_stats` for float32 and entries that hardly ever change, such as pixels.

    Moments are taken about the mean so far, since the rounding of a large sum exceeds so small a deviation.
    """
    about = update_stats(xp, stats._replace(mean=0.0 * stats.mean), batch - stats.mean, mask)
    return about._replace(mean=stats.mean + about.mean)


def normalize_observations(xp: Any, stats: RunningStats, observations: Array, clip: float) -> Array:
    """Observations `[N, ...]` at the running mean 0 and variance 1, clipped to `[-clip, clip]`."""
    return xp.clip((observations - stats.mean) / xp.sqrt(stats.var + EPSILON), -clip, clip)


def discounted_returns(xp: Any, returns: Array, rewards: Array, mask: Array, gamma: float) -> Array:
    """The discounted sum of rewards so far in each episode, `[N]`; a masked (reset) step starts again from 0."""
    return (returns * gamma + rewards) * mask


def normalize_rewards(xp: Any, stats: RunningStats, rewards: Array, clip: float) -> Array:
    """Rewards `[N]` over the running standard deviation of the discounted returns, clipped to `[-clip, clip]`."""
    return xp.clip(rewards / xp.sqrt(stats.var + EPSILON), -clip, clip)


def observe(xp: Any, stats: RunningStats, observations: Array, clip: float) -> tuple[RunningStats, Array]:
    """Statistics that have seen new `observations [N, ...]`, and these normalised by them."""
    stats = update_stats(xp, stats, observations)
    return stats, normalize_observations(xp, stats, observations, clip)


def reward(
    xp: Any, stats: RunningStats, returns: Array, rewards: Array, mask: Array, gamma: float, clip: float
) -> tuple[RunningStats, Array, Array]:
    """Statistics and discounted returns `[N]` that have seen new `rewards [N]`, and these normalised by them."""
    returns = discounted_returns(xp, returns, rewards, mask, gamma)
    stats = update_stats(xp, stats, returns, mask)
    return stats, returns, normalize_rewards(xp, stats, rewards, clip)


class ActionBounds(NamedTuple):
    """Bounds of an environment's actions, `[A]` each, and whether a policy's lie between -1 and 1 instead."""

    low: np.ndarray
    high: np.ndarray
    rescaled: bool

    def within(self, xp: Any, actions: Array) -> Array:
        """Actions `[N, A]` that the environment takes: clipped to its bounds, or stretched to them."""
        if not self.rescaled:
            return xp.clip(actions, self.low, self.high)
        return self.low + (xp.clip(actions, -1.0, 1.0) + 1.0) * (0.5 * (self.high - self.low))


def action_bounds(space: Any, rescaled: bool) -> ActionBounds | None:
    """Bounds of the actions of a space; None for choices. Raises `ConfigError` if they cannot be rescaled."""
    from gymnasium import spaces

    bounded = isinstance(space, spaces.Box)
    if rescaled and not (bounded and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        shown = " ".join(str(space).split())
        raise ConfigError(f"env.rescale_actions=true is for actions of floats with bounds, not {shown}: use false")
    return ActionBounds(space.low, space.high, rescaled) if bounded else None
