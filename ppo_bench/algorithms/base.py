"""The interface of an algorithm: pure functions from a rollout to targets, and from a minibatch to a loss.

An algorithm depends neither on how its functions are executed nor on where the environments run. It declares the arrays
that it adds to the network's, and the metrics that it measures. Results, trackers and the report take these metrics by
their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ppo_bench.common.values import AT_LEAST_1, NOT_NEGATIVE, POSITIVE, added_field, within
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.distributions import PolicyOutputs
from ppo_bench.mathematics.ppo import linear_schedule
from ppo_bench.mathematics.weights import Parameter

if TYPE_CHECKING:
    from ppo_bench.networks.network import NetworkSpec
    from ppo_bench.networks.ops import Ops


FRACTION = within(lambda value: 0 <= value <= 1, "must lie between 0 and 1")
VMAPPABLE_HYPERPARAMETERS = (
    "learning_rate",
    "gamma",
    "gae_lambda",
    "clip_coef",
    "ent_coef",
    "vf_coef",
    "max_grad_norm",
)
"""Names of the hyperparameters that enter equations as numbers and nothing else: one program can compute with several
values of each."""


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of the group `ppo`; conf/ppo/classic.yaml explains each key."""

    num_envs: int = field(metadata=AT_LEAST_1)
    num_steps: int = field(metadata=AT_LEAST_1)
    learning_rate: float = field(metadata=POSITIVE)
    anneal_lr: bool
    adam_eps: float = field(metadata=POSITIVE)
    gamma: float = field(metadata=FRACTION)
    gae_lambda: float = field(metadata=FRACTION)
    update_epochs: int = field(metadata=AT_LEAST_1)
    num_minibatches: int = field(metadata=AT_LEAST_1)
    norm_adv: bool
    clip_coef: float = field(metadata=POSITIVE)
    clip_vloss: bool
    ent_coef: float = field(metadata=NOT_NEGATIVE)
    vf_coef: float = field(metadata=NOT_NEGATIVE)
    max_grad_norm: float = field(metadata=POSITIVE)
    target_kl: float | None = field(metadata=POSITIVE)
    bootstrap_truncated: bool
    mask_resets: bool
    norm_obs: bool
    obs_clip: float = field(metadata=POSITIVE)
    norm_reward: bool
    reward_clip: float = field(metadata=POSITIVE)
    final_learning_rate: float = added_field(0.0, NOT_NEGATIVE)
    final_ent_coef: float | None = added_field(None, NOT_NEGATIVE)
    anneal_timesteps: int | None = added_field(None, AT_LEAST_1)
    weight_decay: float = added_field(0.0, NOT_NEGATIVE)
    shards: int = added_field(1, AT_LEAST_1)
    norm_adv_by_shard: bool = added_field(False)
    adaptive_kl: float | None = added_field(None, POSITIVE)
    min_learning_rate: float = added_field(1e-5, POSITIVE)
    max_learning_rate: float = added_field(1e-2, POSITIVE)

    @property
    def batch_size(self) -> int:
        """Number of transitions in one rollout."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        """Number of transitions in one minibatch."""
        return self.batch_size // self.num_minibatches

    def learning_rate_of(self, iteration: int, num_iterations: int) -> float:
        """The learning rate of `iteration`, which counts from 1, in a run of `num_iterations`."""
        if not self.anneal_lr:
            return self.learning_rate
        passed = (iteration - 1) / self.anneal_iterations(num_iterations)
        return float(linear_schedule(self.learning_rate, self.final_learning_rate, min(passed, 1.0)))

    def anneal_iterations(self, num_iterations: int) -> float:
        """Number of iterations over which coefficients are annealed, in a run of `num_iterations`."""
        return num_iterations if self.anneal_timesteps is None else self.anneal_timesteps / self.batch_size


class Metric(NamedTuple):
    """A scalar that every iteration measures: a column of metrics.jsonl."""

    name: str
    tag: str
    """Name of the metric in trackers: CleanRL's name (docs.cleanrl.dev) where it has one."""
    always_finite: bool = True
    """Whether a value that is not finite ends the run. False for metrics that are undefined (NaN) for some batches."""
    compared: bool = True
    """Whether `equivalence` requires that frameworks agree on it. False if rounding alone can make it jump."""


class Statistic(NamedTuple):
    """The declaration of an array that an algorithm updates from rollouts, without a gradient.

    It is kept when the environments restart, unless it is `is_per_env`.
    """

    name: str
    shape: tuple[int, ...]
    fill: float = 0.0
    is_per_env: bool = False
    """Whether each environment has an entry of its own, `[N, ...]`; environment restarts reset it to `fill`."""


LEARNING_RATE_FACTOR = "learning_rate_factor"
"""Name of the statistic that multiplies the learning rate."""


class Targets(NamedTuple):
    """Result of `Algorithm.targets`."""

    batch: Tree
    """Arrays `[T, N, ...]` that the loss needs in addition to `obs`, `actions` and the network's carry.

    `advantages [T, N]` must be among them. `ppo.norm_adv` normalises them in each minibatch, by the mask `policy`.
    """
    masks: Tree
    """Masks by name, `[T, N]`, or `[T, N, E]` with one for each of E epochs; `policy` must be among them.

    `loss` finds each as `<name>_weight`: divided by its sum over the minibatch.
    """
    statistics: Tree
    """The algorithm's statistics, updated by this rollout."""
    metrics: Tree
    """Scalars by the names of `Algorithm.batch_metrics`."""


class Algorithm(Protocol):
    """An algorithm: a choice of the configuration group `algorithm`, instantiated from its YAML file."""

    @property
    def name(self) -> str:
        """Name of the algorithm's YAML file."""

    @property
    def num_warmup_rollouts(self) -> int:
        """Number of rollouts before the training, by a policy whose parameters are 0. They update only statistics, by
        `warmup`."""

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range."""

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the S reward streams. The critic has a value head for each: values are `[...]` if S is 1, else
        `[..., S]`."""

    def parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Trained parameters in addition to those of `network`. Raises `ConfigError` if the algorithm cannot take the
        observations of `network`."""

    def frozen_parameters(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Arrays that are initialised like parameters and never change."""

    def statistics(self, network: NetworkSpec, hp: Hyperparameters) -> tuple[Statistic, ...]:
        """Arrays that are updated from rollouts, without a gradient.

        One with the name `LEARNING_RATE_FACTOR`, a scalar, multiplies the learning rate of each update.
        `after_update` adapts it; `targets` must not change it.
        """

    @property
    def batch_metrics(self) -> tuple[Metric, ...]:
        """Metrics that `targets` measures once per iteration."""

    @property
    def loss_metrics(self) -> tuple[Metric, ...]:
        """Metrics that `loss` measures for each minibatch; metrics.jsonl has their means over an iteration.

        One of them must be `approx_kl`, which `ppo.target_kl` limits.
        """

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

    def warmup(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """The statistics, updated by one warm-up rollout; `rollout` as in `targets`."""

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

    def after_update(self, ops: Ops, hp: Hyperparameters, statistics: Tree, metrics: Tree) -> Tree:
        """The statistics after an update; `metrics` are the means of `loss_metrics` over its minibatches."""


def loss_metrics_of(algorithm: Algorithm, network: object) -> tuple[Metric, ...]:
    """The metrics of a minibatch: those of the algorithm, then those of the network's auxiliary losses."""
    own: Mapping[str, float] = getattr(network, "auxiliary_losses", {})
    return (*algorithm.loss_metrics, *(Metric(name, f"losses/{name}") for name in own))


def metrics_of(algorithm: Algorithm, network: object = None) -> tuple[Metric, ...]:
    """All metrics of an iteration, in the order of the columns.

    `network` is a `NetworkSpec` or a choice of the group `network`.
    """
    return (
        Metric("learning_rate", "charts/learning_rate", compared=False),
        *loss_metrics_of(algorithm, network),
        *algorithm.batch_metrics,
        Metric("gradient_norm", "losses/gradient_norm", compared=False),
        Metric("masked_fraction", "charts/masked_fraction", compared=False),
    )
