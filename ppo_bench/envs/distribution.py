"""Is this the same task as gymnasium's? Returns and lengths of random play, compared as two samples.

By the test of Kolmogorov and Smirnov: the largest distance between the two distribution functions, and its asymptotic
probability if both samples are of one distribution. Ties, as in lengths, only make it more lenient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.check import Finding
from ppo_bench.envs.host import on_host
from ppo_bench.envs.random_play import random_actions
from ppo_bench.mathematics import noise

SIGNIFICANCE = 1e-3
"""Of each of the two tests: at most 2 in 1,000 environments that are the same are called different. With 1,000 episodes
each, distribution functions that are 0.09 apart anywhere are told from each other every other time."""


class Episodes(NamedTuple):
    """Of whole episodes of random play, `[E]` each."""

    returns: np.ndarray
    lengths: np.ndarray


def compare_distributions(
    make: Callable[[], VectorEnv | GraphEnv], make_reference: Callable[[], VectorEnv | GraphEnv], num_episodes: int
) -> list[Finding]:
    """Whether random play has the same returns and lengths on both, `num_episodes` on each or a few more."""
    ours = random_episodes(make(), num_episodes, seed=1)
    theirs = random_episodes(make_reference(), num_episodes, seed=2)
    return [_compare(name, *samples) for name, *samples in zip(Episodes._fields, ours, theirs, strict=True)]


def random_episodes(env: VectorEnv | GraphEnv, num_episodes: int, seed: int) -> Episodes:
    """The first episodes of each environment, as many of each, `num_episodes` in all or a few more; closes `env`.

    As many of each: the first to finish, of all of them, would be the short ones.
    """
    host, rng = on_host(env), np.random.default_rng(seed)
    of_each = math.ceil(num_episodes / host.num_envs)
    finished: list[list[tuple[float, int]]] = [[] for _ in range(host.num_envs)]
    returns, lengths = np.zeros(host.num_envs), np.zeros(host.num_envs, int)
    done = np.zeros(host.num_envs, bool)
    try:
        host.reset(noise.env_seeds(seed, 0, host.num_envs))
        while any(len(episodes) < of_each for episodes in finished):
            step = host.step(random_actions(host, rng))
            returns, lengths = returns + step.raw_reward, lengths + ~done  # a reset's reward is 0
            for i in np.flatnonzero(step.episode_over):
                finished[i].append((returns[i], lengths[i]))
                returns[i], lengths[i] = 0.0, 0
            done = step.terminated | step.truncated
    finally:
        host.close()
    rows = np.array([episode for episodes in finished for episode in episodes[:of_each]])
    return Episodes(rows[:, 0], rows[:, 1])


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """The statistic and its asymptotic p-value, of samples `[n]` and `[m]` (Smirnov 1939)."""
    points = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (a, b)]
    distance = float(np.abs(below[0] - below[1]).max())
    scaled = 2 * len(a) * len(b) / (len(a) + len(b)) * distance**2
    if scaled < 0.1:
        return distance, 1.0  # to 14 digits, and where the series converges slowly
    p_value = 2 * sum((-1) ** (k - 1) * math.exp(-scaled * k**2) for k in range(1, 21))
    return distance, min(1.0, p_value)


def _compare(name: str, ours: np.ndarray, theirs: np.ndarray) -> Finding:
    distance, p_value = kolmogorov_smirnov(ours, theirs)
    means = f"mean {ours.mean():.4g}, on gymnasium {theirs.mean():.4g}, of {len(ours)} and {len(theirs)} episodes"
    rule = f"{name} of random play are distributed as gymnasium's"
    return Finding(rule, p_value >= SIGNIFICANCE, f"{means}; distance {distance:.3f}, p = {p_value:.2g}")
