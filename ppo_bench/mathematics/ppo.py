"""The equations of PPO, stated once, over any of NumPy, PyTorch and JAX.

`xp` is `numpy`, `torch` or `jax.numpy`. The equations use only names that mean the same in all three, and never branch
on the namespace. Sources: Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (PPO); Schulman et al. 2016,
"High-Dimensional Continuous Control Using Generalized Advantage Estimation" (GAE); Huang et al. 2022, "The 37
Implementation Details of Proximal Policy Optimization" (details).

Shapes: T steps, N environments, B transitions of a minibatch, A outputs of the actor (number of choices or of action
dimensions). Masks and flags are float arrays of 0 and 1. Every mean and variance over transitions is masked: its
denominator is the sum of the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ppo_bench.mathematics.arrays import Array

Total = Callable[[Array], Array]  # the sum of an array over the devices that share a training


def alone(x: Array) -> Array:
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


# --- Masked statistics ------------------------------------------------------------------------------------------------


def masked_mean(xp: Any, x: Array, mask: Array, count: Array | None = None) -> Array:
    """Mean of the entries of `x` where `mask` is 1; 0 if the mask is 0 everywhere.

    With `count`, the number of ones in the whole minibatch, these entries' part of that minibatch's mean.
    """
    return xp.sum(x * mask) / xp.clip(xp.sum(mask) if count is None else count, 1.0, None)


def masked_variance(xp: Any, x: Array, mask: Array, total: Total = alone) -> Array:
    """Population variance (ddof 0) of the entries of `x` where `mask` is 1, on all devices."""
    count = xp.clip(total(xp.sum(mask)), 1.0, None)
    mean = total(xp.sum(x * mask)) / count
    return total(xp.sum(xp.square(x - mean) * mask)) / count


def explained_variance(xp: Any, values: Array, returns: Array, mask: Array, total: Total = alone) -> Array:
    """`1 - Var[returns - values] / Var[returns]`: 1 for a perfect critic, 0 for a constant; not finite if Var is 0."""
    return 1.0 - masked_variance(xp, returns - values, mask, total) / masked_variance(xp, returns, mask, total)


class Whole(NamedTuple):
    """Statistics of whole minibatches, of which a device may hold a part: scalars, or `[K]` for K minibatches."""

    valid: Array
    """Number of transitions from which the critic learns."""
    acts: Array
    """Number of transitions from which the policy learns."""
    advantage_mean: Array
    """Mean over the latter."""
    advantage_std: Array
    """Standard deviation (ddof 0) over the latter."""


def whole_minibatch(xp: Any, valid: Array, acts: Array, advantages: Array, total: Total = alone) -> Whole:
    """Statistics of minibatches from this device's part `[..., B]` of each, by two sums over devices."""
    counts_and_sum = total(xp.stack([xp.sum(x, -1) for x in (valid, acts, advantages * acts)]))
    count = xp.clip(counts_and_sum[1], 1.0, None)
    mean = counts_and_sum[2] / count
    squares = total(xp.sum(xp.square(advantages - mean[..., None]) * acts, -1))
    return Whole(counts_and_sum[0], counts_and_sum[1], mean, xp.sqrt(squares / count))


def normalize_advantages(advantages: Array, mean: Array, std: Array) -> Array:
    """Advantages of a minibatch, shifted and scaled to mean 0 and standard deviation 1 (details, 7)."""
    return (advantages - mean) / (std + 1e-8)


# --- Losses -----------------------------------------------------------------------------------------------------------


class Transitions(NamedTuple):
    """Arrays `[B]` of the rollout that the losses compare with the current network's outputs."""

    log_probs: Array
    values: Array
    advantages: Array
    returns: Array
    valid: Array  # mask of the critic's loss: 0 at a step that only reset its environment
    acts: Array  # mask of the policy's loss: 0 also where the environment ignored the action


class Losses(NamedTuple):
    """Scalars of one minibatch: `total` is minimised, the others are reported."""

    total: Array
    policy_loss: Array
    value_loss: Array
    entropy: Array
    old_approx_kl: Array
    approx_kl: Array
    clip_fraction: Array


def policy_loss(
    xp: Any, ratio: Array, advantages: Array, mask: Array, clip_coef: float, count: Array | None = None
) -> Array:
    """The clipped surrogate objective, to be minimised (PPO, eq. 7)."""
    clipped = xp.clip(ratio, 1.0 - clip_coef, 1.0 + clip_coef)
    return masked_mean(xp, xp.maximum(-advantages * ratio, -advantages * clipped), mask, count)


def value_loss(
    xp: Any,
    values: Array,
    old_values: Array,
    returns: Array,
    mask: Array,
    clip_coef: float,
    clip_vloss: bool,
    count: Array | None = None,
) -> Array:
    """Half the critic's mean squared error; `clip_vloss` clips its values around `old_values` (details, 9)."""
    error = xp.square(values - returns)
    if clip_vloss:
        clipped = old_values + xp.clip(values - old_values, -clip_coef, clip_coef)
        error = xp.maximum(error, xp.square(clipped - returns))
    return 0.5 * masked_mean(xp, error, mask, count)


def kl_k1(xp: Any, log_ratio: Array, mask: Array, count: Array | None = None) -> Array:
    """An unbiased, noisy estimate of KL(old || new) (Schulman 2020, "Approximating KL Divergence", k1)."""
    return masked_mean(xp, -log_ratio, mask, count)


def kl_k3(xp: Any, log_ratio: Array, mask: Array, count: Array | None = None) -> Array:
    """An unbiased, less noisy estimate of KL(old || new) that is never negative (Schulman 2020, k3)."""
    return masked_mean(xp, xp.exp(log_ratio) - 1.0 - log_ratio, mask, count)


def clip_fraction(xp: Any, ratio: Array, mask: Array, clip_coef: float, count: Array | None = None) -> Array:
    """Fraction of transitions whose ratio lies outside the clipping interval (details, 12)."""
    outside = xp.abs(ratio - 1.0) > clip_coef
    return masked_mean(xp, xp.where(outside, xp.ones_like(ratio), xp.zeros_like(ratio)), mask, count)


def losses(
    xp: Any,
    log_probs: Array,
    entropies: Array,
    values: Array,
    batch: Transitions,
    *,
    clip_coef: float,
    clip_vloss: bool,
    norm_adv: bool,
    ent_coef: Array,
    vf_coef: float,
    whole: Whole | None = None,
) -> Losses:
    """PPO's loss on one minibatch (PPO, eq. 9), from the current network's `log_probs`, `entropies`, `values` `[B]`.

    With `whole`, the B transitions are one device's part of the minibatch, and each scalar is their part of the loss.
    """
    acts, whole = batch.acts, whole or whole_minibatch(xp, batch.valid, batch.acts, batch.advantages)
    log_ratio = (log_probs - batch.log_probs) * acts  # the mask keeps meaningless ratios from overflowing
    ratio = xp.exp(log_ratio)
    moments = whole.advantage_mean, whole.advantage_std
    advantages = normalize_advantages(batch.advantages, *moments) if norm_adv else batch.advantages
    policy = policy_loss(xp, ratio, advantages, acts, clip_coef, whole.acts)
    value = value_loss(xp, values, batch.values, batch.returns, batch.valid, clip_coef, clip_vloss, whole.valid)
    entropy = masked_mean(xp, entropies, acts, whole.acts)
    return Losses(
        total=policy - ent_coef * entropy + vf_coef * value,
        policy_loss=policy,
        value_loss=value,
        entropy=entropy,
        old_approx_kl=kl_k1(xp, log_ratio, acts, whole.acts),
        approx_kl=kl_k3(xp, log_ratio, acts, whole.acts),
        clip_fraction=clip_fraction(xp, ratio, acts, clip_coef, whole.acts),
    )


# --- Optimisation -----------------------------------------------------------------------------------------------------


def global_norm(xp: Any, gradients: Sequence[Array]) -> Array:
    """Euclidean norm of all gradients together."""
    return xp.sqrt(sum(xp.sum(xp.square(gradient)) for gradient in gradients))


def clip_scale(xp: Any, norm: Array, max_grad_norm: float) -> Array:
    """The factor that limits the gradient's norm to `max_grad_norm` (details, 11); exactly 1 if `norm` is below it."""
    return max_grad_norm / xp.clip(norm, max_grad_norm, None)


def annealed(first: float, last: float, passed: Array) -> Array:
    """Linear interpolation from `first` to `last` (details, 4); `passed` is the fraction of the schedule, 0 to 1."""
    return last + (first - last) * (1.0 - passed)
