"""The policy's distributions, categorical, several categorical and normal, and the bounds of an environment's actions.

`xp` is `numpy`, `torch` or `jax.numpy`, as in `ppo_bench/mathematics/ppo.py`. A is the number of the actor's outputs:
choices, or dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.mathematics.arrays import Array

PolicyOutputs = tuple[Array, ...]  # parameters of the policy's distribution: (logits,) or (mean, log_std)


def _log_softmax(xp: Any, logits: Array) -> Array:
    shifted = logits - xp.amax(logits, -1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), -1, keepdims=True))


def categorical_sample(xp: Any, policy_outputs: PolicyOutputs, noise: Array) -> Array:
    """Actions `[...]` from logits `[..., A]` and Gumbel noise `[..., A]` (the Gumbel-max trick)."""
    return xp.argmax(policy_outputs[0] + noise, -1)


def categorical_log_prob(xp: Any, policy_outputs: PolicyOutputs, actions: Array) -> Array:
    """Log-probabilities `[...]` of integer actions `[...]`."""
    log_probs = _log_softmax(xp, policy_outputs[0])
    choices = xp.cumsum(xp.ones_like(log_probs), -1) - 1.0
    return xp.sum(xp.where(actions[..., None] == choices, log_probs, 0.0), -1)


def categorical_entropy(xp: Any, policy_outputs: PolicyOutputs) -> Array:
    """Entropy in nats, `[...]`."""
    log_probs = _log_softmax(xp, policy_outputs[0])
    return -xp.sum(xp.exp(log_probs) * log_probs, -1)


def normal_sample(xp: Any, policy_outputs: PolicyOutputs, noise: Array) -> Array:
    """Actions `[..., A]` from (mean `[..., A]`, log_std `[A]`) and standard normal noise `[..., A]`."""
    mean, log_std = policy_outputs
    return mean + xp.exp(log_std) * noise


def normal_log_prob(xp: Any, policy_outputs: PolicyOutputs, actions: Array) -> Array:
    """Log-densities `[...]` of actions `[..., A]`, summed over their independent dimensions."""
    mean, log_std = policy_outputs
    standardised = (actions - mean) * xp.exp(-log_std)
    return xp.sum(-0.5 * xp.square(standardised) - log_std - 0.5 * math.log(2.0 * math.pi), -1)


def normal_entropy(xp: Any, policy_outputs: PolicyOutputs) -> Array:
    """Differential entropy in nats, `[...]`, summed over dimensions."""
    mean, log_std = policy_outputs
    return xp.sum(xp.zeros_like(mean) + log_std + 0.5 * math.log(2.0 * math.pi * math.e), -1)


def std_from_entropy(entropy: float, dimensions: int) -> float:
    """Geometric mean of the standard deviations of a normal policy, from `normal_entropy`."""
    return math.exp(entropy / dimensions - 0.5 * math.log(2.0 * math.pi * math.e))


class Distribution(NamedTuple):
    """A family of policies: `sample(xp, policy_outputs, noise)`, the likeliest action if the noise is 0, `log_prob(xp,
    policy_outputs, actions)`, `entropy(xp, policy_outputs)`."""

    sample: Callable[[Any, PolicyOutputs, Array], Array]
    log_prob: Callable[[Any, PolicyOutputs, Array], Array]
    entropy: Callable[[Any, PolicyOutputs], Array]


def multi_categorical(choices: tuple[int, ...]) -> Distribution:
    """A product of K independent categorical policies; component `i` has the next `choices[i]` logits.

    Actions are `[..., K]`; log-probabilities and entropies are summed over the components.
    """
    bounds = [(sum(choices[:i]), sum(choices[: i + 1])) for i in range(len(choices))]

    def parts(policy_outputs: PolicyOutputs) -> list[PolicyOutputs]:
        return [(policy_outputs[0][..., start:stop],) for start, stop in bounds]

    def sample(xp: Any, policy_outputs: PolicyOutputs, noise: Array) -> Array:
        pairs = zip(parts(policy_outputs), parts((noise,)), strict=True)
        return xp.stack([categorical_sample(xp, part, variates) for part, (variates,) in pairs], -1)

    def log_prob(xp: Any, policy_outputs: PolicyOutputs, actions: Array) -> Array:
        return sum(categorical_log_prob(xp, part, actions[..., i]) for i, part in enumerate(parts(policy_outputs)))

    def entropy(xp: Any, policy_outputs: PolicyOutputs) -> Array:
        return sum(categorical_entropy(xp, part) for part in parts(policy_outputs))

    return Distribution(sample, log_prob, entropy)


CATEGORICAL = Distribution(categorical_sample, categorical_log_prob, categorical_entropy)
NORMAL = Distribution(normal_sample, normal_log_prob, normal_entropy)


class ActionBounds(NamedTuple):
    """Lower and upper bounds `[A]` of an environment's actions.

    If `rescaled`, the policy's actions lie between -1 and 1 and are stretched to the bounds.
    """

    low: np.ndarray
    high: np.ndarray
    rescaled: bool

    def to_env_actions(self, xp: Any, actions: Array) -> Array:
        """The environment's actions `[N, A]`: the policy's `actions [N, A]`, clipped or stretched to the bounds."""
        if not self.rescaled:
            return xp.clip(actions, self.low, self.high)
        stretched = self.low + (xp.clip(actions, -1.0, 1.0) + 1.0) * (0.5 * self.high - 0.5 * self.low)
        return xp.clip(stretched, self.low, self.high)  # which rounding may exceed


def action_bounds(space: Any, rescaled: bool) -> ActionBounds | None:
    """The action bounds of a gymnasium space; None if its actions are discrete.

    Raises `ConfigError` if `rescaled` is true and the space has no finite bounds.
    """
    from gymnasium import spaces

    bounded = isinstance(space, spaces.Box)
    if rescaled and not (bounded and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        text = one_line(space)
        raise ConfigError(f"env.rescale_actions=true is for actions of floats with bounds, not {text}: use false")
    return ActionBounds(space.low, space.high, rescaled) if bounded else None
