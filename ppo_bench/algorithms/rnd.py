"""Random network distillation (Burda et al. 2018): PPO that is also rewarded for what a predictor does not know yet.

The predictor learns what a random network that never changes, the target, makes of an observation; where it errs, the
observation is new. Everything happens after a rollout, from the observations that its steps led to: an episode's last
is one of them, the first of an episode, to which no action led, is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ppo_bench.algorithms.base import Hyperparameters, Metric, Statistic, Targets
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics import noise, ppo
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.normalize import INITIAL_COUNT, RunningStats, update_about_mean, update_stats
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.curiosity import PREDICTOR, TARGET, Curiosity, curiosity

if TYPE_CHECKING:
    from ppo_bench.networks.network import NetworkSpec
    from ppo_bench.networks.ops import Ops

OBS_CLIP = 5.0
"""The clip of normalised observations (Burda et al. 2018, section 2.4)."""


class Novelty(NamedTuple):
    """Errors of the predictor on a rollout's next observations."""

    inputs: Array
    """`[T, N, ...]`, normalised."""
    targets: Array
    """`[T, N, F]`, the target's features of them."""
    errors: Array
    """`[T, N]`, half the squared distance of the predictor's; 0 where a step only reset its environment."""


@dataclass(frozen=True)
class Rnd(Ppo):
    """`algorithm=rnd`, an `Algorithm`; see conf/algorithm/rnd.yaml for what the options mean."""

    streams: ClassVar[tuple[str, ...]] = ("extrinsic", "intrinsic")
    loss_metrics: ClassVar[tuple[Metric, ...]] = (
        *Ppo.loss_metrics,
        Metric("intrinsic_value_loss", "losses/intrinsic_value_loss"),
        Metric("forward_loss", "losses/fwd_loss"),
    )
    batch_metrics: ClassVar[tuple[Metric, ...]] = (
        *Ppo.batch_metrics,
        Metric("intrinsic_reward", "charts/intrinsic_reward"),
        Metric("intrinsic_return", "charts/intrinsic_return"),
        Metric("seen_fraction", "charts/seen_fraction", always_finite=False),  # undefined for images
    )
    int_coef: float
    ext_coef: float
    int_gamma: float
    update_proportion: float
    warm_up_iterations: int
    features: int

    @property
    def warm_up(self) -> int:
        """See `Algorithm.warm_up`."""
        return self.warm_up_iterations

    def require(self) -> None:
        """See `Algorithm.require`."""
        if not 0 <= self.int_gamma <= 1:
            raise ConfigError(f"algorithm.int_gamma={self.int_gamma}: must be between 0 and 1")
        if not 0 < self.update_proportion <= 1:
            raise ConfigError(f"algorithm.update_proportion={self.update_proportion}: must be above 0, at most 1")
        for name in ("int_coef", "ext_coef", "warm_up_iterations"):
            if getattr(self, name) < 0:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)}: must be at least 0")
        if self.features < 1:
            raise ConfigError(f"algorithm.features={self.features}: must be at least 1")

    # --- Arrays -------------------------------------------------------------------------------------------------------

    def curiosity(self, network: NetworkSpec) -> Curiosity:
        """Predictor and target for what `network` observes. Raises `ConfigError` if they cannot take it."""
        return curiosity(network, self.features)

    def learnt(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Algorithm.learnt`."""
        return self.curiosity(network).parameters(PREDICTOR)

    def frozen(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """See `Algorithm.frozen`."""
        return self.curiosity(network).parameters(TARGET)

    def statistics(self, network: NetworkSpec) -> tuple[Statistic, ...]:
        """See `Algorithm.statistics`: of inputs and intrinsic returns; these returns; of vectors, what was seen."""
        shape = self.curiosity(network).input_shape
        fields = {"mean": 0.0, "var": 1.0, "count": INITIAL_COUNT}
        return (
            *(Statistic(f"inputs.{name}", () if name == "count" else shape, fill) for name, fill in fields.items()),
            *(Statistic(f"returns.{name}", (), fill) for name, fill in fields.items()),
            Statistic("intrinsic_returns", (), of_each_env=True),
            *([Statistic("seen", shape)] if len(shape) == 1 else []),
        )

    # --- After a rollout ----------------------------------------------------------------------------------------------

    def warmed(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """See `Algorithm.warmed`: the statistics of inputs."""
        inputs = self._inputs(ops, network, rollout)
        return {**statistics, **_named("inputs", self._seen(ops, statistics, inputs, rollout["valid"]))}

    def targets(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, statistics: Tree, rollout: Tree
    ) -> Targets:
        """See `Algorithm.targets`: PPO's, with the advantages of both streams."""
        xp, valid = ops.xp, rollout["valid"]
        extrinsic, intrinsic = rollout["values"][..., 0], rollout["values"][..., 1]
        own = super().targets(ops, network, hp, arrays, statistics, {**rollout, "values": extrinsic})
        inputs = self._inputs(ops, network, rollout)
        of_inputs = self._seen(ops, statistics, inputs, valid)
        novelty = self._novelty(ops, network, arrays, of_inputs, inputs, valid)

        returns, along = discounted(ops, statistics["intrinsic_returns"], novelty.errors, valid, self.int_gamma)
        of_returns = update_stats(xp, _stats("returns", statistics), along.reshape(-1), valid.reshape(-1))
        rewards = novelty.errors / xp.sqrt(of_returns.var)
        advantages, intrinsic_returns = endless_gae(ops, rewards, intrinsic, valid, self.int_gamma, hp.gae_lambda)

        batch = {
            **own.batch,
            "advantages": self.ext_coef * own.batch["advantages"] + self.int_coef * advantages,
            "intrinsic_returns": intrinsic_returns,
            "inputs": novelty.inputs,
            "features": novelty.targets,
            "led_on": valid,
            "words": _words(xp, rollout, valid),
        }
        seen = {"seen": _ever_seen(xp, statistics["seen"], inputs, valid)} if "seen" in statistics else {}
        metrics = {
            **own.metrics,
            "intrinsic_reward": ppo.masked_mean(xp, rewards, valid),
            "intrinsic_return": ppo.masked_mean(xp, along, valid),
            "seen_fraction": xp.mean(seen["seen"]) if seen else xp.full_like(along[0, 0], float("nan")),
        }
        after = {"intrinsic_returns": returns, **seen}
        return Targets(batch, {**_named("inputs", of_inputs), **_named("returns", of_returns), **after}, metrics)

    def _inputs(self, ops: Ops, network: NetworkSpec, rollout: Tree) -> Array:
        """Observations that the steps led to, `[T, N, ...]`, as the networks take them but for normalisation."""
        return ops.full(self.curiosity(network).part(rollout["obs"][1:]))

    def _seen(self, ops: Ops, statistics: Tree, inputs: Array, valid: Array) -> RunningStats:
        """The statistics of inputs after these."""
        rows = inputs.reshape((-1, *inputs.shape[2:]))
        return update_about_mean(ops.xp, _stats("inputs", statistics), rows, valid.reshape(-1))

    def _novelty(
        self, ops: Ops, network: NetworkSpec, arrays: Tree, stats: RunningStats, inputs: Array, valid: Array
    ) -> Novelty:
        xp, networks, layers = ops.xp, self.curiosity(network), ops.for_layers(arrays)

        def features(x: Array) -> tuple[Array, Array]:
            return networks.features(ops, PREDICTOR, layers, x), networks.features(ops, TARGET, layers, x)

        normalized = xp.clip((inputs - stats.mean) / xp.sqrt(stats.var), -OBS_CLIP, OBS_CLIP)
        if networks.convolutions:  # step by step: what the layers of a whole rollout make takes gigabytes
            _, both = ops.scan(lambda carry, row: (carry, dict(enumerate(features(row["x"])))), (), {"x": normalized})
            predicted, targets = both[0], both[1]
        else:
            predicted, targets = features(normalized)
        errors = 0.5 * xp.sum(xp.square(predicted - targets), -1)
        return Novelty(normalized, targets, errors * valid)

    # --- Of a minibatch -----------------------------------------------------------------------------------------------

    def loss(
        self,
        ops: Ops,
        network: NetworkSpec,
        hp: Hyperparameters,
        arrays: Tree,
        head: ppo.Head,
        values: Array,
        batch: Tree,
    ) -> tuple[Array, Tree]:
        """See `Algorithm.loss`: PPO's, the error of the intrinsic critic, unclipped, and the predictor's."""
        xp = ops.xp
        total, measured = super().loss(ops, network, hp, arrays, head, values[..., 0], batch)
        error = xp.square(values[..., 1] - batch["intrinsic_returns"])
        intrinsic_value_loss = 0.5 * ppo.masked_mean(xp, error, batch["valid"])
        predicted = self.curiosity(network).features(ops, PREDICTOR, ops.for_layers(arrays), batch["inputs"])
        distances = xp.mean(xp.square(predicted - batch["features"]), -1)
        taught = batch["led_on"] * (_draws(xp, batch["words"], distances) < self.update_proportion)
        forward_loss = xp.sum(distances * taught) / xp.clip(xp.sum(taught), 1.0, None)
        total = total + hp.vf_coef * intrinsic_value_loss + forward_loss
        return total, {**measured, "intrinsic_value_loss": intrinsic_value_loss, "forward_loss": forward_loss}


# --- Equations --------------------------------------------------------------------------------------------------------


def discounted(ops: Ops, returns: Array, rewards: Array, valid: Array, gamma: float) -> tuple[Array, Array]:
    """The running discounted sums of rewards, `[N]` after the rollout and `[T, N]` along it.

    They cross the ends of episodes; a step that only reset its environment leaves them as they are.
    """

    def step(before: Array, row: Tree) -> tuple[Array, Tree]:
        after = row["valid"] * (gamma * before + row["rewards"]) + (1.0 - row["valid"]) * before
        return after, {"returns": after}

    last, along = ops.scan(step, returns, {"rewards": rewards, "valid": valid})
    return last, along["returns"]


def endless_gae(
    ops: Ops, rewards: Array, values: Array, valid: Array, gamma: float, gae_lambda: float
) -> tuple[Array, Array]:
    """Advantages and returns `[T, N]` of a stream that does not end with episodes, from `values [T + 1, N]`.

    A step that only reset its environment is transparent: it takes the next row's value and advantage, with no reward
    and no discount. A reset step never follows another. That the row after the last step would be one is not known.
    """
    xp = ops.xp
    begun = valid * values[:-1] + (1.0 - valid) * values[1:]
    following = xp.concatenate((begun[1:], values[-1:]), 0)
    deltas = valid * (rewards + gamma * following - begun)
    advantages = ops.scan_backwards(xp, deltas, valid * (gamma * gae_lambda) + (1.0 - valid))
    return advantages, advantages + begun


def _ever_seen(xp: Any, seen: Array, inputs: Array, valid: Array) -> Array:
    """Ones for the components `[D]` of the inputs that were ever other than 0, else zeros."""
    present = xp.where(inputs != 0, valid[..., None], 0.0 * valid[..., None])
    return xp.clip(seen + xp.sum(present, (0, 1)), 0.0, 1.0)


def _words(xp: Any, rollout: Tree, valid: Array) -> Array:
    """A random word of each step, `[T, N]` int32."""
    counts = xp.ones_like(valid, dtype=xp.int32)
    steps, envs = xp.cumsum(counts[:, 0], 0, dtype=xp.int32) - 1, xp.cumsum(counts[0], 0, dtype=xp.int32) - 1
    seed, iteration = rollout["seed"], rollout["iteration"]
    words, _ = noise.action_words(xp, seed, iteration, steps, envs, 0 * envs[:1], noise.Stream.TRANSITIONS)
    return words[..., 0]


def _draws(xp: Any, words: Array, like: Array) -> Array:
    """Uniform draws `[B]`: of each transition another in each epoch, by its word and its place in the minibatch."""
    places = xp.cumsum(xp.ones_like(words), 0, dtype=xp.int32)
    drawn, _ = noise.threefry2x32((words, xp.zeros_like(words)), (places, xp.zeros_like(words)))
    return noise.uniform(xp, drawn, like.dtype)


def _stats(name: str, statistics: Tree) -> RunningStats:
    return RunningStats(*(statistics[f"{name}.{field}"] for field in RunningStats._fields))


def _named(name: str, stats: RunningStats) -> dict[str, Array]:
    return {f"{name}.{field}": array for field, array in zip(RunningStats._fields, stats, strict=True)}
