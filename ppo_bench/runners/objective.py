"""PPO's equations put together, over a rollout and over a minibatch: the same in every framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ppo_bench import ppo
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.ppo import Array, Head
from ppo_bench.runners.base import Hyperparameters


class Stored(Protocol):
    """What the policy saw and did in an iteration: `[T + 1, N, ...]` each, the last row for after the rollout."""

    @property
    def actions(self) -> Array:
        """`[T + 1, N]` or `[T + 1, N, K]`; the last row is not used."""

    @property
    def heads(self) -> Array:
        """`[T + 1, N, A]`, the first part of the policy's head: logits or mean."""

    @property
    def values(self) -> Array:
        """`[T + 1, N]`."""


def targets(
    xp: Any,
    network: NetworkSpec,
    hp: Hyperparameters,
    params: Mapping[str, Array],
    stored: Stored,
    rewards: Array,
    terminated: Array,
    truncated: Array,
    real: Array,
    *,
    scan: Callable[[Any, Array, Array], Array] = ppo.scan_backwards,
) -> tuple[ppo.Minibatch, Array]:
    """What the losses need of all `[T * N]` transitions, and the explained variance of the old values.

    Rewards and flags are `[T, N]`, of the parameters' type; `scan` as `ppo.gae` takes it.
    """
    advantages = ppo.gae(
        xp,
        rewards,
        stored.values,
        terminated,
        truncated,
        gamma=hp.gamma,
        gae_lambda=hp.gae_lambda,
        bootstrap_truncated=hp.bootstrap_truncated,
        scan=scan,
    )
    values = stored.values[:-1]
    returns = advantages + values
    mask = real if hp.mask_resets else xp.ones_like(real)
    heads, actions = stored.heads[:-1], stored.actions[:-1]
    head: Head = (heads,) if network.discrete else (heads, params["actor.log_std"])
    log_probs = network.distribution.log_prob(xp, head, actions)
    explained_variance = ppo.explained_variance(xp, values, returns, mask)
    return ppo.Minibatch(*(x.reshape(-1) for x in (log_probs, values, advantages, returns, mask))), explained_variance


def losses(
    xp: Any, network: NetworkSpec, hp: Hyperparameters, head: Head, values: Array, actions: Array, batch: ppo.Minibatch
) -> ppo.Losses:
    """PPO's loss on one minibatch, from the network's fresh `head` and `values`."""
    return ppo.losses(
        xp,
        network.distribution.log_prob(xp, head, actions),
        network.distribution.entropy(xp, head),
        values,
        batch,
        clip_coef=hp.clip_coef,
        clip_vloss=hp.clip_vloss,
        norm_adv=hp.norm_adv,
        ent_coef=hp.ent_coef,
        vf_coef=hp.vf_coef,
    )
