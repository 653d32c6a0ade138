"""Failures that EnvPool takes for time limits.

Its `done` says that an episode is over and its `trunc` that the limit is reached; where both happen in the same step,
nothing tells whether the episode also failed (Atari's `info` does, see `as_step`). Such a failure is learnt as a time
limit and bootstrapped. A pool with a longer limit, played by the same seeds and actions, shows how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppo_bench.envs.base import Task, VectorEnv
from ppo_bench.envs.random_play import play, random_actions
from ppo_bench.mathematics import noise

NUM_ENVS = 200
STEPS = 300
"""In each environment, to find out how long episodes of random play last."""


class Confusion(NamedTuple):
    """Episodes at a limit: how many reached it, and how many of them failed in that very step."""

    limit: int
    reached: int
    failed: int


def confusion(make: Callable[[Task], VectorEnv], task: Task, limit: int | None = None) -> Confusion | None:
    """How often a failure falls on a limit of that many steps in random play, by default the median length of failures.

    None if random play does not fail, or if the environments' limit cannot be set.
    """
    task = replace(task, num_envs=NUM_ENVS)
    limit = limit or _median_length(make(task))
    if limit is None:
        return None
    short, longer = (make(replace(task, kwargs={**task.kwargs, "max_episode_steps": n})) for n in (limit, limit + 1))
    try:
        seeds, rng = noise.env_seeds(1, 0, NUM_ENVS), np.random.default_rng(1)
        for env in (short, longer):
            env.reset(seeds)
        over = np.zeros(NUM_ENVS, bool)
        for _ in range(limit):
            actions = random_actions(short, rng)
            at_limit, beyond = short.step(actions).map(np.copy), longer.step(actions).map(np.copy)
            reached = ~over
            over |= at_limit.terminated | at_limit.truncated
        return Confusion(limit, int(reached.sum()), int((reached & beyond.terminated & ~at_limit.terminated).sum()))
    finally:
        short.close()
        longer.close()


def _median_length(env: VectorEnv) -> int | None:
    """Median length of the first episodes that failed within `STEPS`; None if fewer than one in ten did."""
    try:
        steps = play(env, noise.env_seeds(1, 0, env.num_envs), STEPS).steps
    finally:
        env.close()
    failed = steps.terminated.any(0)
    lengths = steps.terminated.argmax(0)[failed] + 1
    return int(np.median(lengths)) if len(lengths) >= env.num_envs / 10 else None


def evidence(found: Confusion | None, own_limit: int) -> str:
    """A sentence on what was found; `own_limit` is the environment's."""
    if found is None:
        return "random play does not fail"
    share = found.failed / max(found.reached, 1)
    return (
        f"{found.failed} of {found.reached} episodes that reach a limit of {found.limit} steps fail in that very step "
        f"({share:.1%}) and are learnt as time limits; its own limit is {own_limit:,}"
    )
