"""Test whether two environments are the same task, by the returns and lengths of episodes of random play.

The two-sample Kolmogorov-Smirnov test compares the distributions of an environment and of its counterpart on gymnasium.
Its statistic is the largest distance between the two distribution functions; its p-value is asymptotic. Ties, as in
lengths, only make the test more lenient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.check import Finding
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.random_play import random_actions
from ppo_bench.mathematics import noise

SIGNIFICANCE = 1e-3
"""Significance level of each of the two tests: of identical environments, at most 2 in 1,000 are called different. With
1,000 episodes each, a distance of 0.09 between the distribution functions is detected in half of all cases."""


class Episodes(NamedTuple):
    """Returns and lengths of E whole episodes of random play, `[E]` each."""

    returns: np.ndarray
    lengths: np.ndarray


def compare_distributions(
    make: Callable[[], VectorEnv | GraphEnv], make_reference: Callable[[], VectorEnv | GraphEnv], num_episodes: int
) -> list[Finding]:
    """Findings on returns and lengths, from `num_episodes` or a few more episodes of random play in each of the two."""
    ours = random_episodes(make(), num_episodes, seed=1)
    theirs = random_episodes(make_reference(), num_episodes, seed=2)
    return [_compare(name, *samples) for name, *samples in zip(Episodes._fields, ours, theirs, strict=True)]


def random_episodes(env: VectorEnv | GraphEnv, num_episodes: int, seed: int) -> Episodes:
    """Returns and lengths of `num_episodes` episodes of random play (or a few more); closes `env`.

    Each environment contributes the same number of episodes. The first ones to finish in any environment would be a
    biased sample of short episodes.
    """
    host, rng = to_vector_env(env), np.random.default_rng(seed)
    episodes_per_env = math.ceil(num_episodes / host.num_envs)
    finished: list[list[tuple[float, int]]] = [[] for _ in range(host.num_envs)]
    returns, lengths = np.zeros(host.num_envs), np.zeros(host.num_envs, int)
    done = np.zeros(host.num_envs, bool)
    try:
        host.reset(noise.env_seeds(seed, 0, host.num_envs))
        while any(len(episodes) < episodes_per_env for episodes in finished):
            step = host.step(random_actions(host, rng))
            returns, lengths = returns + step.raw_reward, lengths + ~done  # a reset's reward is 0
            for i in np.flatnonzero(step.episode_over):
                finished[i].append((returns[i], lengths[i]))
                returns[i], lengths[i] = 0.0, 0
            done = step.terminated | step.truncated
    finally:
        host.close()
    rows = np.array([episode for episodes in finished for episode in episodes[:episodes_per_env]])
    return Episodes(rows[:, 0], rows[:, 1])


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """The Kolmogorov-Smirnov statistic of samples `a [n]` and `b [m]`, and its asymptotic p-value (Smirnov 1939)."""
    points = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (a, b)]
    distance = float(np.abs(below[0] - below[1]).max())
    scaled = 2 * len(a) * len(b) / (len(a) + len(b)) * distance**2
    if scaled < 0.1:
        return distance, 1.0  # exact to 14 digits; the series below converges slowly here
    p_value = 2 * sum((-1) ** (k - 1) * math.exp(-scaled * k**2) for k in range(1, 21))
    return distance, min(1.0, p_value)


def _compare(name: str, ours: np.ndarray, theirs: np.ndarray) -> Finding:
    distance, p_value = kolmogorov_smirnov(ours, theirs)
    means = f"mean {ours.mean():.4g}, on gymnasium {theirs.mean():.4g}, of {len(ours)} and {len(theirs)} episodes"
    rule = f"{name} of random play are distributed as gymnasium's"
    return Finding(rule, p_value >= SIGNIFICANCE, f"{means}; distance {distance:.3f}, p = {p_value:.2g}")
