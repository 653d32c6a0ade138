"""Running normalisation of observations and rewards, over any of NumPy, PyTorch and JAX.

Functions take state and return new state. Statistics start as in gymnasium's wrappers: mean 0, variance 1, count 1e-4.
Observation statistics include every observation, also the final one of an episode, as gymnasium's do; environments
that reset in the same step (`backend=tensors`) do not show it. Return
statistics leave out the steps that only reset an environment. Keep statistics in float64 where the device has it: in
float32 a count of 2^24 no longer grows when 1 is added. Sources: Huang et al. 2022, "The 37 Implementation Details of
PPO", continuous details 5 to 8; Chan et al. 1979 for the parallel update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ppo_bench.mathematics.arrays import Array

EPSILON = 1e-8
INITIAL_COUNT = 1e-4


class RunningStats(NamedTuple):
    """Running `mean` and variance `var`, of the shape of one entry, and the number of entries `count`, a scalar."""

    mean: Array
    var: Array
    count: Array


def select_stats(state: Mapping[str, Array], of: str) -> RunningStats:
    """The statistics `<of>.mean`, `<of>.var` and `<of>.count` in `state`, such as those of `normalize.obs`."""
    return RunningStats(*(state[f"{of}.{field}"] for field in RunningStats._fields))


def stats_arrays(stats: RunningStats, of: str) -> dict[str, Array]:
    """The arrays of `stats`, under the names that `select_stats` reads."""
    return {f"{of}.{field}": value for field, value in zip(RunningStats._fields, stats, strict=True)}


class Moments(NamedTuple):
    """Moments of a set of entries: `mean`, sum `m2` of squared deviations from the mean, number of entries `count`."""

    mean: Array
    m2: Array
    count: Array


def moments(xp: Any, batch: Array, mask: Array | None = None) -> Moments:
    """Moments of the rows of `batch [N, ...]` along axis 0.

    Entries where `mask` is 0 are left out; it is `[N]` or has the shape of `batch`.
    """
    if mask is None:
        count = float(batch.shape[0])
        mean = xp.sum(batch, 0) / count
        return Moments(mean, xp.sum(xp.square(batch - mean), 0), count)
    weight = mask if mask.ndim == batch.ndim else mask.reshape((-1,) + (1,) * (batch.ndim - 1))
    count = xp.sum(mask, 0)
    mean = xp.sum(batch * weight, 0) / xp.clip(count, 1.0, None)
    return Moments(mean, xp.sum(xp.square(batch - mean) * weight, 0), count)


AllReduceMoments = Callable[[Moments], Moments]
"""From the moments of one device's entries to those of all devices' entries."""


def single_device_moments(batch_moments: Moments) -> Moments:
    """`batch_moments` itself: the moments of all entries where there is one device."""
    return batch_moments


def pool_moments(xp: Any, batch_moments: Moments, gather: Callable[[Array], Array]) -> Moments:
    """Moments of the entries of D devices, from those of one of them (Chan et al. 1979).

    `gather` returns the arrays `[D, ...]` of all devices; it is called once.
    """
    mean, zeros = batch_moments.mean, 0.0 * batch_moments.mean
    counts, means, m2s = xp.swapaxes(gather(xp.stack([zeros + batch_moments.count, mean, batch_moments.m2])), 0, 1)
    count = xp.sum(counts, 0)
    mean = xp.sum(counts * means, 0) / xp.clip(count, 1.0, None)
    m2 = xp.sum(m2s + counts * xp.square(means - mean), 0)
    shape = getattr(batch_moments.count, "shape", ())
    return Moments(mean, m2, count if shape == mean.shape else count.reshape(-1)[0])


def merge_moments(stats: RunningStats, batch_moments: Moments) -> RunningStats:
    """`stats` updated by the entries whose moments are `batch_moments` (Chan et al. 1979); arrays or plain numbers."""
    count = stats.count + batch_moments.count
    share = batch_moments.count / count
    delta = batch_moments.mean - stats.mean
    m2 = stats.var * stats.count + batch_moments.m2 + delta * delta * (stats.count * share)
    return RunningStats(stats.mean + delta * share, m2 / count, count)


def update_stats(
    xp: Any,
    stats: RunningStats,
    batch: Array,
    mask: Array | None = None,
    all_reduce_moments: AllReduceMoments = single_device_moments,
) -> RunningStats:
    """`stats` updated by the rows of `batch [N, ...]`; rows where `mask [N]` is 0 are left out."""
    return merge_moments(stats, all_reduce_moments(moments(xp, batch, mask)))


def update_stats_centered(
    xp: Any,
    stats: RunningStats,
    batch: Array,
    mask: Array,
    all_reduce_moments: AllReduceMoments = single_device_moments,
) -> RunningStats:
    """`update_stats` in float32 for entries that rarely change, such as pixels.

    It subtracts the current mean from the batch first. Otherwise the rounding error of a large sum would exceed such
    small deviations.
    """
    about = update_stats(xp, stats._replace(mean=0.0 * stats.mean), batch - stats.mean, mask, all_reduce_moments)
    return about._replace(mean=stats.mean + about.mean)


def normalize_observations(xp: Any, stats: RunningStats, observations: Array, clip: float) -> Array:
    """Observations `[N, ...]` standardised by the running mean and variance, clipped to `[-clip, clip]`."""
    return xp.clip((observations - stats.mean) / xp.sqrt(stats.var + EPSILON), -clip, clip)


def update_discounted_returns(returns: Array, rewards: Array, mask: Array, gamma: float) -> Array:
    """The discounted sum `[N]` of the rewards so far in each episode; it is 0 after a reset step, where `mask` is 0."""
    return (returns * gamma + rewards) * mask


def normalize_rewards(xp: Any, stats: RunningStats, rewards: Array, clip: float) -> Array:
    """Rewards `[N]` divided by the running standard deviation of the discounted returns, clipped to `[-clip, clip]`."""
    return xp.clip(rewards / xp.sqrt(stats.var + EPSILON), -clip, clip)
