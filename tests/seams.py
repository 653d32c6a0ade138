"""A user-defined algorithm on top of PPO, for tests of the interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppo_bench.algorithms.base import Hyperparameters, Metric, Statistic, Targets
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import NetworkSpec

LEVELLED = ["algorithm._target_=tests.seams.Levelled", "algorithm.name=levelled"]
SMALL = ["ppo.num_steps=8", "ppo.update_epochs=2", "ppo.num_minibatches=2"]


@dataclass(frozen=True)
class Levelled(Ppo):
    """PPO that also learns the level of the returns, and counts the transitions that it has seen."""

    batch_metrics = (*Ppo.batch_metrics, Metric("transitions", "charts/transitions"))
    loss_metrics = (*Ppo.loss_metrics, Metric("level_loss", "losses/level"))

    def parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        return (Parameter("level", (), None),)

    def frozen_parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        return (Parameter("projection", (2, 3), 1.0),)

    def statistics(self, network: NetworkSpec, hp: Hyperparameters) -> tuple[Statistic, ...]:
        return (Statistic("transitions", ()),)

    def targets(self, ops: Any, network: Any, hp: Any, arrays: Any, statistics: Any, rollout: Any) -> Targets:
        targets = super().targets(ops, network, hp, arrays, statistics, rollout)
        seen = statistics["transitions"] + ops.xp.sum(rollout["value_mask"])
        return targets._replace(statistics={"transitions": seen}, metrics={**targets.metrics, "transitions": seen})

    def loss(
        self, ops: Any, network: Any, hp: Any, arrays: Any, policy_outputs: Any, values: Any, batch: Any
    ) -> tuple[Any, Any]:
        total, measured = super().loss(ops, network, hp, arrays, policy_outputs, values, batch)
        away = ops.xp.sum(ops.xp.square(arrays["projection"])) * (batch["returns"] - arrays["level"])  # the sum is 2
        level_loss = ops.xp.sum(ops.xp.square(away) * batch["value_weight"])
        return total + level_loss, {**measured, "level_loss": level_loss}
