"""A user-defined algorithm and network, on top of PPO and of an MLP, for tests of the interfaces to both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppo_bench.algorithms.base import Hyperparameters, Metric, Statistic, Targets
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import CarrySpec, NetworkOutputs, NetworkSpec
from ppo_bench.networks.spec import Mlp

LEVELLED = ["algorithm._target_=tests.seams.Levelled", "algorithm.name=levelled"]
NETWORKS = ["AveragingMlp", "AveragingSequencesMlp"]
SMALL = ["ppo.num_steps=8", "ppo.update_epochs=2", "ppo.num_minibatches=2"]


def remembering(network: str) -> list[str]:
    return ["network=mlp", f"network._target_=tests.seams.{network}", "network.hidden_sizes=[8]"]


def ours(network: str) -> list[str]:
    return [*remembering(network), *LEVELLED]


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


@dataclass(frozen=True, kw_only=True)
class Averaging(NetworkSpec):
    """The network of a fading mean of the observations; how fast it fades is learnt."""

    behind: NetworkSpec
    """The network that sees the mean."""

    def forward(self, ops: Any, params: Any, obs: Any, carry: Any, episode_start: Any) -> NetworkOutputs:
        if episode_start.ndim == 2:
            rows = {"obs": obs, "episode_start": episode_start}
            carry, outputs = ops.scan(lambda carry, row: self._step(ops, params, carry, row), carry, rows)
            return NetworkOutputs(self.policy_outputs(params, outputs["first"]), outputs["values"], carry)
        share = 1.0 / (1.0 + ops.xp.exp(-params["fading"]))
        mean = share * carry["mean"] * (1.0 - episode_start[:, None]) + (1.0 - share) * obs
        return self.behind.forward(ops, params, mean, {}, None)._replace(carry={"mean": mean})

    def _step(self, ops: Any, params: Any, carry: Any, row: Any) -> Any:
        policy_outputs, values, carry = self.forward(ops, params, row["obs"], carry, row["episode_start"])
        return carry, {"first": policy_outputs[0], "values": values}


@dataclass(frozen=True)
class AveragingMlp(Mlp):
    """`Averaging` with an MLP behind it."""

    learns_from_sequences = False

    def build(self, observation_space: Any, action_space: Any, streams: int = 1) -> NetworkSpec:
        behind = super().build(observation_space, action_space, streams)
        own = {
            "parameters": (*behind.parameters, Parameter("fading", (), None)),
            "carry": (CarrySpec("mean", behind.input_shape),),
            "separate_critic": False,  # the mean is shared
            "learns_from_sequences": self.learns_from_sequences,
        }
        return Averaging(**{**vars(behind), **own}, behind=behind)


@dataclass(frozen=True)
class AveragingSequencesMlp(AveragingMlp):
    """The same, which learns through its memory."""

    learns_from_sequences = True
