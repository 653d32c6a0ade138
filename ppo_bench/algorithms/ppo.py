"""PPO, which is also the interface of an algorithm: equations of mathematics/ppo.py on a rollout and a minibatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppo_bench.algorithms.base import LEARNING_RATE_FACTOR, Hyperparameters, Metric, Statistic, Targets
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.distributions import PolicyOutputs
from ppo_bench.mathematics.weights import Parameter

if TYPE_CHECKING:
    from ppo_bench.networks.network import NetworkSpec
    from ppo_bench.networks.ops import Ops


@dataclass(frozen=True)
class Ppo:
    """`algorithm=ppo` (Schulman et al. 2017); other algorithms are subclasses.

    Its methods are pure, and depend neither on how they are executed nor on where the environments run. The group `ppo`
    has the hyperparameters. Results, trackers and the report take metrics by their names.
    """

    streams: ClassVar[tuple[str, ...]] = ("reward",)
    """Names of the S reward streams. The critic has an output for each: values are `[...]` if S is 1, else `[..., S]`.
    """
    loss_metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("policy_loss", "losses/policy_loss"),
        Metric("value_loss", "losses/value_loss"),
        Metric("entropy", "losses/entropy"),
        Metric("old_approx_kl", "losses/old_approx_kl"),
        Metric("approx_kl", "losses/approx_kl"),
        Metric("clip_fraction", "losses/clipfrac", compared=False),
    )
    """Metrics that `loss` measures for each minibatch; metrics.jsonl has their means over an iteration.

    One of them must be `approx_kl`, which `ppo.target_kl` limits.
    """
    batch_metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("explained_variance", "losses/explained_variance", always_finite=False),  # undefined for equal returns
    )
    """Metrics that `targets` measures once per iteration."""
    name: str
    """Name of the algorithm's YAML file."""

    @property
    def num_warmup_rollouts(self) -> int:
        """Number of rollouts before the training, by a policy whose parameters are 0. They update only statistics, by
        `warmup`."""
        return 0

    def parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Trained parameters in addition to those of `network`. Raises `ConfigError` if the algorithm cannot take the
        observations of `network`."""
        return ()

    def frozen_parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Arrays that are initialised like parameters and never change."""
        return ()

    def statistics(self, network: NetworkSpec, hp: Hyperparameters) -> tuple[Statistic, ...]:
        """Arrays that are updated from rollouts, without a gradient.

        One with the name `LEARNING_RATE_FACTOR`, a scalar, multiplies the learning rate of each update.
        `after_update` adapts it; `targets` must not change it.
        """
        return () if hp.adaptive_kl is None else (Statistic(LEARNING_RATE_FACTOR, (), 1.0),)

    def warmup(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """The statistics, updated by one warm-up rollout: `rollout` as in `targets`, without keys of noise."""
        return statistics

    def targets(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, statistics: Tree, rollout: Tree
    ) -> Targets:
        """Advantages and the other arrays that the loss needs, computed from one rollout.

        `arrays` holds the trained and the frozen arrays. `rollout` holds:

        - `obs`, `actions`, `values` and `logits_or_mean` (of the policy), `[T + 1, N, ...]`;
          the last row belongs to the observation after the last step,
        - `rewards`, `terminated`, `truncated`, `[T, N]`,
        - `value_mask [T, N]`, the critic's mask: 0 where the step only reset its environment,
        - `policy_mask [T, N]`, the policy's mask: 0 also where the environment ignored the action,
        - `seed` and `iteration`, `[1]` int32, the keys of noise, and `first_row`, the number of the first of the N
          rows among those of all devices.

        Flags and masks are floats of 0 and 1. Sums over transitions go through `ops.all_reduce_sum`, since other
        devices may hold the rest of them.
        """
        xp = ops.xp
        advantages = ppo.gae(
            xp,
            rollout["rewards"],
            rollout["values"],
            rollout["terminated"],
            rollout["truncated"],
            gamma=hp.gamma,
            gae_lambda=hp.gae_lambda,
            bootstrap_truncated=hp.bootstrap_truncated,
            scan=ops.scan_backwards,
        )
        values = rollout["values"][:-1]
        returns = advantages + values
        value_mask, policy_mask = rollout["value_mask"], rollout["policy_mask"]
        if not hp.mask_resets:  # reset steps become ordinary transitions; ignored actions of other steps stay masked
            value_mask, policy_mask = xp.ones_like(value_mask), 1.0 - (value_mask - policy_mask)
        policy_outputs = network.policy_outputs(arrays, rollout["logits_or_mean"][:-1])
        batch = {
            "log_probs": network.distribution.log_prob(xp, policy_outputs, rollout["actions"][:-1]),
            "values": values,
            "advantages": advantages,
            "returns": returns,
        }
        if hp.final_ent_coef is not None:
            passed = (xp.zeros_like(advantages) + rollout["iteration"] - 1) / hp.anneal_iterations(0)
            batch["ent_coef"] = ppo.linear_schedule(hp.ent_coef, hp.final_ent_coef, xp.clip(passed, 0.0, 1.0))
        explained_variance = ppo.explained_variance(xp, values, returns, value_mask, ops.all_reduce_sum)
        masks = {"value": value_mask, "policy": policy_mask}
        return Targets(batch, masks, statistics, {"explained_variance": explained_variance})

    def loss(
        self,
        ops: Ops,
        network: NetworkSpec,
        hp: Hyperparameters,
        arrays: Tree,
        policy_outputs: PolicyOutputs,
        values: Array,
        batch: Tree,
    ) -> tuple[Array, Tree]:
        """The scalar to minimise on a minibatch of B transitions, and scalars by the names of `loss_metrics`.

        `policy_outputs` and `values` are the network's outputs. `batch` holds the arrays of `Targets.batch`, `obs`
        and `actions`, `[B, ...]` each, and the weights `<name>_weight [B]` of `Targets.masks`. Every result must be a
        sum over the B transitions of terms times a weight. Devices that share a minibatch then add theirs up.
        """
        losses = ppo.losses(
            ops.xp,
            network.distribution.log_prob(ops.xp, policy_outputs, batch["actions"]),
            network.distribution.entropy(ops.xp, policy_outputs),
            values,
            ppo.Transitions(*(batch[name] for name in ppo.Transitions._fields)),
            clip_coef=hp.clip_coef,
            clip_vloss=hp.clip_vloss,
            ent_coef=batch["ent_coef"][0] if "ent_coef" in batch else hp.ent_coef,
            vf_coef=hp.vf_coef,
        )
        return losses.total, {metric.name: getattr(losses, metric.name) for metric in Ppo.loss_metrics}

    def after_update(self, ops: Ops, hp: Hyperparameters, statistics: Tree, metrics: Tree) -> Tree:
        """The statistics after an update; `metrics` are the means of `loss_metrics` over its minibatches.

        With `ppo.adaptive_kl` the learning rate follows the KL divergence.
        """
        if hp.adaptive_kl is None:
            return statistics
        factor = ppo.adapt_lr_factor(
            ops.xp,
            statistics[LEARNING_RATE_FACTOR],
            metrics["approx_kl"],
            hp.adaptive_kl,
            hp.min_learning_rate / hp.learning_rate,
            hp.max_learning_rate / hp.learning_rate,
        )
        return {**statistics, LEARNING_RATE_FACTOR: factor}


def metrics_of(algorithm: Ppo) -> tuple[Metric, ...]:
    """All metrics of an iteration, in the order of the columns."""
    return (
        Metric("learning_rate", "charts/learning_rate", compared=False),
        *algorithm.loss_metrics,
        *algorithm.batch_metrics,
        Metric("gradient_norm", "losses/gradient_norm", compared=False),
        Metric("masked_fraction", "charts/masked_fraction", compared=False),
    )
