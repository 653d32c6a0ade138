"""The equations of PPO, stated once, over any of NumPy, PyTorch and JAX.

`xp` is `numpy`, `torch` or `jax.numpy`. The equations use only names that mean the same in all three, and never branch
on the namespace. Sources: Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (PPO); Schulman et al. 2016,
"High-Dimensional Continuous Control Using Generalized Advantage Estimation" (GAE); Huang et al. 2022, "The 37
Implementation Details of Proximal Policy Optimization" (details).

Shapes: T steps, N environments, B transitions of a minibatch, A outputs of the actor (number of choices or of action
dimensions). Masks and flags are float arrays of 0 and 1. Every mean and variance over transitions is masked. The losses
take a mask as weights, divided by its sum over the minibatch, so that a mean is a sum of weighted terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ppo_bench.mathematics.arrays import Array

AllReduceSum = Callable[[Array], Array]  # the sum of an array over the devices that share a training


def single_device_sum(x: Array) -> Array:
    """`x` itself: its sum over devices where there is one device."""
    return x


# --- Advantages -------------------------------------------------------------------------------------------------------


def gae_step(next_advantage: Array, delta: Array, decay: Array) -> Array:
    """One step of the backward recursion of GAE (eq. 16): `A_t = delta_t + decay_t * A_{t+1}`."""
    return delta + decay * next_advantage


def scan_backwards(xp: Any, deltas: Array, decays: Array) -> Array:
    """Advantages `[T, N]`: `gae_step` applied from the last row to the first of `deltas` and `decays`, `[T, N]`."""
    advantage = xp.zeros_like(deltas[0])
    advantages = []
    for t in reversed(range(deltas.shape[0])):
        advantage = gae_step(advantage, deltas[t], decays[t])
        advantages.append(advantage)
    return xp.stack(advantages[::-1])


def gae(
    xp: Any,
    rewards: Array,
    values: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    gae_lambda: float,
    bootstrap_truncated: bool = True,
    scan: Callable[[Any, Array, Array], Array] = scan_backwards,
) -> Array:
    """Generalised advantage estimates `[T, N]` (GAE, eq. 16).

    `rewards`, `terminated` and `truncated` are `[T, N]`; `values [T + 1, N]` are those of the observation before each
    step and of the one after the last step. The observation after a truncated step is the final one of its episode, so
    `values[t + 1]` is the truncation bootstrap. `bootstrap_truncated=False` treats a time limit as a terminal state, as
    CleanRL does. Estimates at masked steps are meaningless and affect no other step.
    """
    continues = (1.0 - terminated) * (1.0 - truncated)
    bootstrap = 1.0 - terminated if bootstrap_truncated else continues
    deltas = rewards + gamma * bootstrap * values[1:] - values[:-1]
    return scan(xp, deltas, gamma * gae_lambda * continues)


# --- Statistics of masked transitions ---------------------------------------------------------------------------------


def normalize_masks(xp: Any, masks: Array, all_reduce_sum: AllReduceSum = single_device_sum) -> Array:
    """Weights `[..., B]` of B transitions: each mask, divided by its sum over them on all devices.

    The weights add up to 1, or are 0 everywhere, as their mask is.
    """
    return masks / xp.clip(all_reduce_sum(xp.sum(masks, -1)), 1.0, None)[..., None]


def centered_moments(
    xp: Any, x: Array, weights: Array, all_reduce_sum: AllReduceSum = single_device_sum
) -> tuple[Array, Array]:
    """`x [..., B]` without its weighted mean, and its weighted population variance `[..., 1]`, on all devices."""
    centered = x - all_reduce_sum(xp.sum(x * weights, -1))[..., None]
    return centered, all_reduce_sum(xp.sum(xp.square(centered) * weights, -1))[..., None]


def explained_variance(
    xp: Any, values: Array, returns: Array, mask: Array, all_reduce_sum: AllReduceSum = single_device_sum
) -> Array:
    """`1 - Var[returns - values] / Var[returns]`: 1 for a perfect critic, 0 for a constant; not finite if Var is 0."""
    weights = normalize_masks(xp, mask.reshape(-1), all_reduce_sum)
    _, error_variance = centered_moments(xp, (returns - values).reshape(-1), weights, all_reduce_sum)
    _, return_variance = centered_moments(xp, returns.reshape(-1), weights, all_reduce_sum)
    return 1.0 - (error_variance / return_variance)[0]


def normalize_advantages(
    xp: Any, advantages: Array, weights: Array, all_reduce_sum: AllReduceSum = single_device_sum
) -> Array:
    """Advantages `[..., B]` of minibatches, shifted and scaled to mean 0 and standard deviation 1 (details, 7)."""
    centered, variance = centered_moments(xp, advantages, weights, all_reduce_sum)
    return centered / (xp.sqrt(variance) + 1e-8)


# --- Losses -----------------------------------------------------------------------------------------------------------


class Transitions(NamedTuple):
    """Arrays `[B]` of the rollout that the losses compare with the current network's outputs."""

    log_probs: Array
    values: Array
    advantages: Array
    returns: Array
    value_weight: Array  # of the critic's loss: 0 at a step that only reset its environment
    policy_weight: Array  # of the policy's loss: 0 also where the environment ignored the action


class Losses(NamedTuple):
    """Scalars of one minibatch: `total` is minimised, the others are reported."""

    total: Array
    policy_loss: Array
    value_loss: Array
    entropy: Array
    old_approx_kl: Array
    approx_kl: Array
    clip_fraction: Array


def policy_loss(xp: Any, ratio: Array, advantages: Array, weight: Array, clip_coef: float) -> Array:
    """The clipped surrogate objective, to be minimised (PPO, eq. 7)."""
    clipped = xp.clip(ratio, 1.0 - clip_coef, 1.0 + clip_coef)
    return xp.sum(xp.maximum(-advantages * ratio, -advantages * clipped) * weight)


def value_loss(
    xp: Any,
    values: Array,
    old_values: Array,
    returns: Array,
    weight: Array,
    clip_coef: float,
    clip_vloss: bool,
) -> Array:
    """Half the critic's mean squared error; `clip_vloss` clips its values around `old_values` (details, 9)."""
    error = xp.square(values - returns)
    if clip_vloss:
        clipped = old_values + xp.clip(values - old_values, -clip_coef, clip_coef)
        error = xp.maximum(error, xp.square(clipped - returns))
    return 0.5 * xp.sum(error * weight)


def kl_k1(xp: Any, log_ratio: Array, weight: Array) -> Array:
    """An unbiased, noisy estimate of KL(old || new) (Schulman 2020, "Approximating KL Divergence", k1)."""
    return xp.sum(-log_ratio * weight)


def kl_k3(xp: Any, log_ratio: Array, weight: Array) -> Array:
    """An unbiased, less noisy estimate of KL(old || new) that is never negative (Schulman 2020, k3)."""
    return xp.sum((xp.exp(log_ratio) - 1.0 - log_ratio) * weight)


def clip_fraction(xp: Any, ratio: Array, weight: Array, clip_coef: float) -> Array:
    """Fraction of transitions whose ratio lies outside the clipping interval (details, 12)."""
    return xp.sum(xp.where(xp.abs(ratio - 1.0) > clip_coef, weight, xp.zeros_like(weight)))


def losses(
    xp: Any,
    log_probs: Array,
    entropies: Array,
    values: Array,
    batch: Transitions,
    *,
    clip_coef: float,
    clip_vloss: bool,
    ent_coef: Array,
    vf_coef: float,
) -> Losses:
    """PPO's loss on one minibatch (PPO, eq. 9), from the current network's `log_probs`, `entropies`, `values` `[B]`.

    Every scalar is a weighted sum over transitions: where devices share a minibatch, those of the devices add up.
    """
    weight = batch.policy_weight
    log_ratio = (log_probs - batch.log_probs) * xp.sign(weight)  # 0 where masked: meaningless ratios could overflow
    ratio = xp.exp(log_ratio)
    policy = policy_loss(xp, ratio, batch.advantages, weight, clip_coef)
    value = value_loss(xp, values, batch.values, batch.returns, batch.value_weight, clip_coef, clip_vloss)
    entropy = xp.sum(entropies * weight)
    return Losses(
        total=policy - ent_coef * entropy + vf_coef * value,
        policy_loss=policy,
        value_loss=value,
        entropy=entropy,
        old_approx_kl=kl_k1(xp, log_ratio, weight),
        approx_kl=kl_k3(xp, log_ratio, weight),
        clip_fraction=clip_fraction(xp, ratio, weight, clip_coef),
    )


# --- Optimisation -----------------------------------------------------------------------------------------------------


def global_norm(xp: Any, gradients: Sequence[Array]) -> Array:
    """Euclidean norm of all gradients together."""
    return xp.sqrt(sum(xp.sum(xp.square(gradient)) for gradient in gradients))


def clip_scale(xp: Any, norm: Array, max_grad_norm: float) -> Array:
    """The factor that limits the gradient's norm to `max_grad_norm` (details, 11); exactly 1 if `norm` is below it."""
    return max_grad_norm / xp.clip(norm, max_grad_norm, None)


def adapt_lr_factor(xp: Any, factor: Array, kl: Array, target: float, lowest: float, highest: float) -> Array:
    """The factor of a learning rate after an update with the divergence `kl`, scalars.

    It is divided by 1.5 if `kl` is above twice the `target`, multiplied by 1.5 if `kl` is below half of it, and kept
    within `lowest` and `highest` (Schwarke et al. 2025, "RSL-RL"; the schedule `adaptive` of rl_games).
    """
    risen = xp.where(kl < 0.5 * target, factor * 1.5, factor)
    return xp.clip(xp.where(kl > 2.0 * target, factor / 1.5, risen), lowest, highest)


def linear_schedule(first: float, last: float, passed: Array) -> Array:
    """Linear interpolation from `first` to `last` (details, 4); `passed` is the fraction of the schedule, 0 to 1."""
    return last + (first - last) * (1.0 - passed)
