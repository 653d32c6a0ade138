"""PPO as an `Algorithm`: the equations of ppo_bench/mathematics/ppo.py applied to a rollout and to a minibatch."""

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
    """`algorithm=ppo` (Schulman et al. 2017), an `Algorithm`; the group `ppo` has its hyperparameters."""

    streams: ClassVar[tuple[str, ...]] = ("reward",)
    loss_metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("policy_loss", "losses/policy_loss"),
        Metric("value_loss", "losses/value_loss"),
        Metric("entropy", "losses/entropy"),
        Metric("old_approx_kl", "losses/old_approx_kl"),
        Metric("approx_kl", "losses/approx_kl"),
        Metric("clip_fraction", "losses/clipfrac", compared=False),
    )
    batch_metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("explained_variance", "losses/explained_variance", always_finite=False),  # undefined for equal returns
    )
    name: str

    @property
    def num_warmup_rollouts(self) -> int:
        """See `Algorithm.num_warmup_rollouts`."""
        return 0

    def require(self) -> None:
        """See `Algorithm.require`."""

    def parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Algorithm.parameters`."""
        return ()

    def frozen_parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Algorithm.frozen_parameters`."""
        return ()

    def statistics(self, network: NetworkSpec, hp: Hyperparameters) -> tuple[Statistic, ...]:
        """See `Algorithm.statistics`: the factor of an adapted learning rate."""
        return () if hp.adaptive_kl is None else (Statistic(LEARNING_RATE_FACTOR, (), 1.0),)

    def warmup(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """See `Algorithm.warmup`."""
        return statistics

    def targets(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, statistics: Tree, rollout: Tree
    ) -> Targets:
        """See `Algorithm.targets`: generalised advantage estimates, returns and the old log-probabilities."""
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
        """See `Algorithm.loss`: the clipped surrogate objective, the critic's squared error and the entropy bonus."""
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
        """See `Algorithm.after_update`: the learning rate follows the KL divergence with `ppo.adaptive_kl`."""
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
