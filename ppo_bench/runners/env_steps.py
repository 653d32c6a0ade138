"""Bookkeeping of environments that are stepped on the device: what a step changes, and normalisation.

The same functions for programs of JAX and for tensors of PyTorch; `xp` is `jax.numpy` or `torch`.
"""

from __future__ import annotations

from typing import Any

from ppo_bench.envs.base import Step
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.normalize import Across
from ppo_bench.runners.base import Problem

STEP_FLAGS = ("terminated", "truncated", "valid", "acts", "start", "episode_over")
"""Names of a step's flags; `valid` is false where a step only reset its environment."""


def after_step(xp: Any, problem: Problem, before: Tree, given: Step, across: Across) -> tuple[Tree, Array, Tree]:
    """Arrays of the environments after a step that returned `given`; the step's rewards `[N]`, and its `STEP_FLAGS`.

    `before` are the arrays before the step. Statistics are float64, as on the host. In JAX it requires 64-bit types to
    be enabled.
    """
    hp, done = problem.ppo, before["envs.done"]
    valid, after, rewards = ~done, {**before, "envs.start": done}, given.reward
    if hp.norm_reward:
        stats, returns, rewards = normalize.reward(
            xp,
            normalize.stats_in(before, "normalize.return"),
            before["envs.discounted_returns"],
            xp.asarray(rewards, dtype=xp.float64),
            xp.asarray(valid, dtype=xp.float64),
            hp.gamma,
            hp.reward_clip,
            across,
        )
        after |= normalize.named_stats(stats, "normalize.return") | {"envs.discounted_returns": returns}
    after["envs.done"] = given.terminated | given.truncated
    after["envs.acts"] = xp.ones_like(done) if given.acts is None else given.acts
    if given.legal is not None:
        after["envs.legal"] = given.legal
    after |= observed(xp, problem, after, given.obs, across)
    flags = {
        "terminated": given.terminated,
        "truncated": given.truncated,
        "valid": valid,
        "acts": before["envs.acts"] & valid,
        "start": before["envs.start"],
        "episode_over": given.episode_over,
    }
    return after, xp.asarray(rewards, dtype=xp.float32), flags


def observed(xp: Any, problem: Problem, arrays: Tree, raw: Array, across: Across) -> dict[str, Array]:
    """Observations in the network's layout, `envs.obs`; with `norm_obs` normalised, and with the updated statistics.

    `arrays` have the statistics before.
    """
    seen: dict[str, Array] = {}
    if problem.ppo.norm_obs:
        stats = normalize.stats_in(arrays, "normalize.obs")
        raw = xp.asarray(raw, dtype=xp.float64)
        stats, raw = normalize.observe(xp, stats, raw, problem.ppo.obs_clip, across)
        seen |= normalize.named_stats(stats, "normalize.obs")
    return seen | {"envs.obs": problem.network.arrange(raw, xp)}
