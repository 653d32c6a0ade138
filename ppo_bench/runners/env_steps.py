"""Bookkeeping of environments that are stepped on the device: what a step changes, and normalisation.

The same functions for programs of JAX and for tensors of PyTorch; `xp` is `jax.numpy` or `torch`.
"""

from __future__ import annotations

from typing import Any

from ppo_bench.envs.base import EnvStep
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.normalize import AllReduceMoments
from ppo_bench.runners.base import TrainingSpec

STEP_FLAGS = ("terminated", "truncated", "value_mask", "policy_mask", "episode_start", "episode_over")
"""Names of a step's flags; `value_mask` is false where a step only reset its environment."""


def after_step(
    xp: Any, spec: TrainingSpec, before: Tree, env_step: EnvStep, all_reduce_moments: AllReduceMoments
) -> tuple[Tree, Array, Tree]:
    """Arrays of the environments after a step that returned `env_step`; the step's rewards `[N]`, and its `STEP_FLAGS`.

    `before` are the arrays before the step. Statistics are float64, as on the host. In JAX it requires 64-bit types to
    be enabled.
    """
    hp, done = spec.ppo, before["envs.done"]
    value_mask, after, rewards = ~done, {**before, "envs.episode_start": done}, env_step.reward
    if hp.norm_reward:
        stats, returns = normalize.select_stats(before, "normalize.return"), before["envs.discounted_returns"]
        rewards, mask = xp.asarray(rewards, dtype=xp.float64), xp.asarray(value_mask, dtype=xp.float64)
        returns = normalize.update_discounted_returns(returns, rewards, mask, hp.gamma)
        stats = normalize.update_stats(xp, stats, returns, mask, all_reduce_moments)
        rewards = normalize.normalize_rewards(xp, stats, rewards, hp.reward_clip)
        after |= normalize.stats_arrays(stats, "normalize.return") | {"envs.discounted_returns": returns}
    after["envs.done"] = env_step.terminated | env_step.truncated
    after["envs.policy_mask"] = xp.ones_like(done) if env_step.policy_mask is None else env_step.policy_mask
    if env_step.action_mask is not None:
        after["envs.action_mask"] = env_step.action_mask
    after |= observe(xp, spec, after, env_step.obs, all_reduce_moments)
    flags = {
        "terminated": env_step.terminated,
        "truncated": env_step.truncated,
        "value_mask": value_mask,
        "policy_mask": before["envs.policy_mask"] & value_mask,
        "episode_start": before["envs.episode_start"],
        "episode_over": env_step.episode_over,
    }
    return after, xp.asarray(rewards, dtype=xp.float32), flags


def observe(
    xp: Any, spec: TrainingSpec, arrays: Tree, raw: Array, all_reduce_moments: AllReduceMoments
) -> dict[str, Array]:
    """Observations in the network's layout, `envs.obs`; with `norm_obs` normalised, and with the updated statistics.

    `arrays` have the statistics before.
    """
    updated: dict[str, Array] = {}
    if spec.ppo.norm_obs:
        stats = normalize.select_stats(arrays, "normalize.obs")
        raw = xp.asarray(raw, dtype=xp.float64)
        stats = normalize.update_stats(xp, stats, raw, all_reduce_moments=all_reduce_moments)
        raw = normalize.normalize_observations(xp, stats, raw, spec.ppo.obs_clip)
        updated |= normalize.stats_arrays(stats, "normalize.obs")
    return updated | {"envs.obs": spec.network.to_input_layout(raw, xp)}
