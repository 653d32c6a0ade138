"""Random network distillation (Burda et al. 2018): PPO with an intrinsic reward for novel observations.

A predictor network learns the features that a fixed random network, the target, computes from an observation. The
predictor's error is large for observations that are new. The error is computed after a rollout, for the observation
that follows each step. This includes the final observation of an episode, and not the first one, to which no action
led.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ppo_bench.algorithms.base import FRACTION, Hyperparameters, Metric, Statistic, Targets
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.common.values import AT_LEAST_1, NOT_NEGATIVE, within
from ppo_bench.mathematics import noise, ppo
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.distributions import PolicyOutputs
from ppo_bench.mathematics.normalize import (
    INITIAL_COUNT,
    RunningStats,
    select_stats,
    stats_arrays,
    update_stats,
    update_stats_centered,
)
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.rnd_networks import PREDICTOR, TARGET, rnd_networks

if TYPE_CHECKING:
    from ppo_bench.networks.network import NetworkSpec
    from ppo_bench.networks.ops import Ops

OBS_CLIP = 5.0
"""Bound of normalised observations: they are clipped to `[-OBS_CLIP, OBS_CLIP]` (Burda et al. 2018, section 2.4)."""


@dataclass(frozen=True)
class Rnd(Ppo):
    """`algorithm=rnd`; conf/algorithm/rnd.yaml explains its options."""

    streams: ClassVar[tuple[str, ...]] = ("extrinsic", "intrinsic")
    loss_metrics: ClassVar[tuple[Metric, ...]] = (
        *(
            metric._replace(tag="losses/extrinsic_value_loss") if metric.name == "value_loss" else metric
            for metric in Ppo.loss_metrics
        ),
        Metric("intrinsic_value_loss", "losses/intrinsic_value_loss"),
        Metric("forward_loss", "losses/fwd_loss"),
    )
    batch_metrics: ClassVar[tuple[Metric, ...]] = (
        *Ppo.batch_metrics,
        Metric("intrinsic_reward", "charts/intrinsic_reward"),
        Metric("intrinsic_return", "charts/intrinsic_return"),
    )
    int_coef: float = field(metadata=NOT_NEGATIVE)
    ext_coef: float = field(metadata=NOT_NEGATIVE)
    int_gamma: float = field(metadata=FRACTION)
    update_proportion: float = field(metadata=within(lambda value: 0 < value <= 1, "must be above 0, at most 1"))
    warm_up_iterations: int = field(metadata=NOT_NEGATIVE)
    features: int = field(metadata=AT_LEAST_1)

    @property
    def num_warmup_rollouts(self) -> int:
        """See `Ppo.num_warmup_rollouts`."""
        return self.warm_up_iterations

    # --- Arrays -------------------------------------------------------------------------------------------------------

    def parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Ppo.parameters`."""
        return rnd_networks(network, self.features).parameters(PREDICTOR)

    def frozen_parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Ppo.frozen_parameters`."""
        return rnd_networks(network, self.features).parameters(TARGET)

    def statistics(self, network: NetworkSpec, hp: Hyperparameters) -> tuple[Statistic, ...]:
        """See `Ppo.statistics`: moments of the inputs and of the intrinsic returns, and the running intrinsic return
        of each environment."""
        shape = rnd_networks(network, self.features).input_shape
        fields = {"mean": 0.0, "var": 1.0, "count": INITIAL_COUNT}
        return (
            *super().statistics(network, hp),
            *(Statistic(f"inputs.{name}", () if name == "count" else shape, fill) for name, fill in fields.items()),
            *(Statistic(f"returns.{name}", (), fill) for name, fill in fields.items()),
            Statistic("intrinsic_returns", (), is_per_env=True),
        )

    # --- After a rollout ----------------------------------------------------------------------------------------------

    def warmup(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """See `Ppo.warmup`: it updates the moments of the inputs."""
        inputs, value_mask = self._predictor_inputs(ops, network, rollout), rollout["value_mask"]
        counted = value_mask if hp.mask_resets else ops.xp.ones_like(value_mask)
        return {**statistics, **stats_arrays(self._update_input_stats(ops, statistics, inputs, counted), "inputs")}

    def targets(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, statistics: Tree, rollout: Tree
    ) -> Targets:
        """See `Ppo.targets`: PPO's, with a weighted sum of the advantages of both reward streams."""
        xp = ops.xp
        extrinsic, intrinsic = rollout["values"][..., 0], rollout["values"][..., 1]
        own = super().targets(ops, network, hp, arrays, statistics, {**rollout, "values": extrinsic})
        value_mask = own.masks["value"]  # 1 everywhere with mask_resets=false: reset steps are ordinary transitions
        inputs = self._predictor_inputs(ops, network, rollout)
        input_stats = self._update_input_stats(ops, statistics, inputs, value_mask)
        normalized = xp.clip((inputs - input_stats.mean) / xp.sqrt(input_stats.var), -OBS_CLIP, OBS_CLIP)
        features, errors = self._prediction_errors(ops, network, arrays, normalized)
        errors = errors * value_mask

        returns, sums = discounted_sums(ops, statistics["intrinsic_returns"], errors, value_mask, self.int_gamma)
        return_stats = update_stats(
            xp, select_stats(statistics, "returns"), sums.reshape(-1), value_mask.reshape(-1), ops.all_reduce_moments
        )
        rewards = errors / xp.sqrt(return_stats.var)
        advantages, intrinsic_returns = non_episodic_gae(
            ops, rewards, intrinsic, value_mask, self.int_gamma, hp.gae_lambda
        )

        batch = {
            **own.batch,
            "advantages": self.ext_coef * own.batch["advantages"] + self.int_coef * advantages,
            "intrinsic_returns": intrinsic_returns,
            "inputs": normalized,
            "features": features,
        }
        uniforms = _uniforms(xp, rollout, hp.update_epochs)
        masks = {**own.masks, "predictor": value_mask[..., None] * (uniforms < self.update_proportion)}
        weights = ppo.normalize_masks(xp, value_mask.reshape(-1), ops.all_reduce_sum).reshape(value_mask.shape)
        metrics = {
            **own.metrics,
            "intrinsic_reward": ops.all_reduce_sum(xp.sum(rewards * weights)),
            "intrinsic_return": ops.all_reduce_sum(xp.sum(sums * weights)),
        }
        after = stats_arrays(input_stats, "inputs") | stats_arrays(return_stats, "returns")
        return Targets(batch, masks, {**statistics, **after, "intrinsic_returns": returns}, metrics)

    def _predictor_inputs(self, ops: Ops, network: NetworkSpec, rollout: Tree) -> Array:
        """The observation after each step, `[T, N, ...]`, in the layout of predictor and target, not yet normalised."""
        return ops.to_param_dtype(rnd_networks(network, self.features).inputs_from(rollout["obs"][1:]))

    def _update_input_stats(self, ops: Ops, statistics: Tree, inputs: Array, value_mask: Array) -> RunningStats:
        """The moments of inputs, updated by `inputs [T, N, ...]` where `value_mask [T, N]` is 1."""
        rows = inputs.reshape((-1, *inputs.shape[2:]))
        return update_stats_centered(
            ops.xp, select_stats(statistics, "inputs"), rows, value_mask.reshape(-1), ops.all_reduce_moments
        )

    def _prediction_errors(
        self, ops: Ops, network: NetworkSpec, arrays: Tree, normalized: Array
    ) -> tuple[Array, Array]:
        """The target's features `[T, N, F]` of normalised inputs `[T, N, ...]`, and half the squared distance of the
        predictor's from them, `[T, N]`."""
        networks, layers = rnd_networks(network, self.features), ops.to_layer_dtype(arrays)

        def features(x: Array) -> tuple[Array, Array]:
            return networks.features(ops, PREDICTOR, layers, x), networks.features(ops, TARGET, layers, x)

        if networks.takes_images:  # one step at a time: the activations of a whole rollout would take gigabytes
            _, both = ops.scan(lambda carry, row: (carry, dict(enumerate(features(row["x"])))), (), {"x": normalized})
            predicted, targets = both[0], both[1]
        else:
            predicted, targets = features(normalized)
        return targets, 0.5 * ops.xp.sum(ops.xp.square(predicted - targets), -1)

    # --- On a minibatch -----------------------------------------------------------------------------------------------

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
        """See `Ppo.loss`: PPO's loss, the unclipped error of the intrinsic value and the predictor's error."""
        xp = ops.xp
        total, measured = super().loss(ops, network, hp, arrays, policy_outputs, values[..., 0], batch)
        error = xp.square(values[..., 1] - batch["intrinsic_returns"])
        intrinsic_value_loss = 0.5 * xp.sum(error * batch["value_weight"])
        predicted = rnd_networks(network, self.features).features(
            ops, PREDICTOR, ops.to_layer_dtype(arrays), batch["inputs"]
        )
        distances = xp.mean(xp.square(predicted - batch["features"]), -1)
        forward_loss = xp.sum(distances * batch["predictor_weight"])
        total = total + hp.vf_coef * intrinsic_value_loss + forward_loss
        return total, {**measured, "intrinsic_value_loss": intrinsic_value_loss, "forward_loss": forward_loss}


# --- Equations --------------------------------------------------------------------------------------------------------


def discounted_sums(ops: Ops, returns: Array, rewards: Array, value_mask: Array, gamma: float) -> tuple[Array, Array]:
    """Running discounted sums of rewards: `[N]` after the rollout, and `[T, N]` after each step.

    `returns [N]` are the sums before the rollout. The sums continue across the ends of episodes; a reset step
    (`value_mask` 0) does not change them.
    """

    def step(before: Array, row: Tree) -> tuple[Array, Tree]:
        after = row["value_mask"] * (gamma * before + row["rewards"]) + (1.0 - row["value_mask"]) * before
        return after, {"returns": after}

    last, sums = ops.scan(step, returns, {"rewards": rewards, "value_mask": value_mask})
    return last, sums["returns"]


def non_episodic_gae(
    ops: Ops, rewards: Array, values: Array, value_mask: Array, gamma: float, gae_lambda: float
) -> tuple[Array, Array]:
    """Advantages and returns `[T, N]` of a reward stream that continues across episodes, from `values [T + 1, N]`.

    A reset step (`value_mask` 0) is transparent: it takes the value and the advantage of the next row, without reward
    or discount. One reset step never follows another. Whether the step after the rollout is a reset step is not known,
    so that its value is used as it is.
    """
    xp = ops.xp
    current = value_mask * values[:-1] + (1.0 - value_mask) * values[1:]
    following = xp.concatenate((current[1:], values[-1:]), 0)
    deltas = value_mask * (rewards + gamma * following - current)
    advantages = ops.scan_backwards(xp, deltas, value_mask * (gamma * gae_lambda) + (1.0 - value_mask))
    return advantages, advantages + current


def _uniforms(xp: Any, rollout: Tree, epochs: int) -> Array:
    """Uniform random numbers, `[T, N, E]`: one for each transition in each epoch."""
    value_mask = rollout["value_mask"]
    counts = xp.ones_like(value_mask, dtype=xp.int32)
    steps, rows = xp.cumsum(counts[:, 0], 0, dtype=xp.int32) - 1, xp.cumsum(counts[0], 0, dtype=xp.int32) - 1
    lanes = xp.stack([0 * rows[0] + epoch for epoch in range(epochs)])
    keys = rollout["seed"], rollout["iteration"], steps, rollout["first_row"] + rows, lanes
    words, _ = noise.action_words(xp, *keys, noise.Stream.TRANSITIONS)
    return noise.uniform(xp, words, value_mask.dtype)
