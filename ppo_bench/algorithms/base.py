"""What algorithms take and declare: hyperparameters, metrics, statistics and targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ppo_bench.common.values import AT_LEAST_1, NOT_NEGATIVE, POSITIVE, added_field, within
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.ppo import linear_schedule

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
    """Result of `Ppo.targets`."""

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
    """Scalars by the names of `Ppo.batch_metrics`."""
