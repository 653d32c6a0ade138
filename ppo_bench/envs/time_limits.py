"""Counts the terminations that EnvPool reports as truncations.

EnvPool's `done` says that an episode is over, its `trunc` that the time limit is reached. If both are set in a step,
nothing shows whether the episode also terminated in that step (Atari's `info` does, see `make_env_step`). Such a
termination is learnt as a time limit, with a bootstrap. A second pool with a longer limit and the same seeds and
actions shows how many there are.
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
"""Steps of random play in each environment that measure how long episodes last."""


class TimeLimitConfusion(NamedTuple):
    """Numbers of episodes that reached the time limit `limit`, and of those that terminated in that very step."""

    limit: int
    reached: int
    failed: int


def measure_confusion(
    make: Callable[[Task], VectorEnv], task: Task, limit: int | None = None
) -> TimeLimitConfusion | None:
    """Counts of terminations at a time limit of `limit` steps in random play.

    The default limit is the median length of terminated episodes. None if random play rarely terminates.
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
        return TimeLimitConfusion(
            limit, int(reached.sum()), int((reached & beyond.terminated & ~at_limit.terminated).sum())
        )
    finally:
        short.close()
        longer.close()


def _median_length(env: VectorEnv) -> int | None:
    """Median length of the first episodes that terminated within `STEPS`; None if fewer than one in ten did."""
    try:
        steps = play(env, noise.env_seeds(1, 0, env.num_envs), STEPS).steps
    finally:
        env.close()
    failed = steps.terminated.any(0)
    lengths = steps.terminated.argmax(0)[failed] + 1
    return int(np.median(lengths)) if len(lengths) >= env.num_envs / 10 else None


def describe_confusion(found: TimeLimitConfusion | None, own_limit: int | None) -> str:
    """A sentence that reports `found`; `own_limit` is the environment's time limit in steps, if it has one."""
    if found is None:
        return "random play does not fail"
    own = f"a limit of {own_limit:,} itself" if own_limit else "no limit itself"
    share = found.failed / max(found.reached, 1)
    return (
        f"{found.failed} of {found.reached} episodes that reach a limit of {found.limit} steps fail in that very step "
        f"({share:.1%}) and are learnt as time limits; it has {own}"
    )
