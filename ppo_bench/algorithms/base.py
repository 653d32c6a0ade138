"""Algorithms: pure functions from a rollout to targets, and from a minibatch to a loss.

An algorithm knows neither how its functions are executed nor where environments live. It declares what it adds to the
network's arrays; what it measures goes under the names of its `metrics` to results, trackers and report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ppo_bench.common.values import younger
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.ppo import Head, annealed
from ppo_bench.mathematics.weights import Parameter

if TYPE_CHECKING:
    from ppo_bench.networks.network import NetworkSpec
    from ppo_bench.networks.ops import Ops


@dataclass(frozen=True)
class Hyperparameters:
    """The keys of conf/ppo/*.yaml, which explains them."""

    num_envs: int
    num_steps: int
    learning_rate: float
    anneal_lr: bool
    adam_eps: float
    gamma: float
    gae_lambda: float
    update_epochs: int
    num_minibatches: int
    norm_adv: bool
    clip_coef: float
    clip_vloss: bool
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float | None
    bootstrap_truncated: bool
    mask_resets: bool
    norm_obs: bool
    obs_clip: float
    norm_reward: bool
    reward_clip: float
    final_learning_rate: float = younger(0.0)
    final_ent_coef: float | None = younger(None)
    anneal_timesteps: int | None = younger(None)
    weight_decay: float = younger(0.0)

    @property
    def batch_size(self) -> int:
        """Transitions of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        """Transitions of one gradient step."""
        return self.batch_size // self.num_minibatches

    def learning_rate_of(self, iteration: int, num_iterations: int) -> float:
        """The learning rate of an iteration, counted from 1."""
        if not self.anneal_lr:
            return self.learning_rate
        passed = (iteration - 1) / self.anneal_iterations(num_iterations)
        return float(annealed(self.learning_rate, self.final_learning_rate, min(passed, 1.0)))

    def anneal_iterations(self, num_iterations: int) -> float:
        """Iterations over which coefficients are annealed, of a run of so many."""
        return num_iterations if self.anneal_timesteps is None else self.anneal_timesteps / self.batch_size


class Metric(NamedTuple):
    """A number that every iteration measures: a column of metrics.jsonl."""

    name: str
    tag: str
    """Its name in trackers: CleanRL's (docs.cleanrl.dev) where it has one."""
    always_finite: bool = True
    """False if it is undefined (NaN) for some batches; otherwise a value that is not finite ends the run."""
    compared: bool = True
    """Whether two frameworks are to agree on it: not if rounding alone can make it jump."""


class Statistic(NamedTuple):
    """An array that follows what is seen, outlasts restarts of the environments and has no gradient."""

    name: str
    shape: tuple[int, ...]
    fill: float = 0.0
    of_each_env: bool = False
    """One of each environment, `[N, ...]`, which begins anew with them."""


class Targets(NamedTuple):
    """Result of `Algorithm.targets`."""

    batch: Tree
    """Arrays of each transition for the loss, beside `obs`, `actions` and the network's memory; `[T, N]` each."""
    statistics: Tree
    """The algorithm's statistics after this rollout."""
    metrics: Tree
    """Scalars, by the names of `batch_metrics`."""


class Algorithm(Protocol):
    """A choice of the group `algorithm`: what is learnt from a rollout. Made from its YAML file."""

    @property
    def name(self) -> str:
        """Name of the YAML file."""

    @property
    def warm_up(self) -> int:
        """Rollouts of a policy of zeros before the training, from which statistics alone learn; see `warmed`."""

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of rewards, of each of which the critic has a value: one, or values `[..., S]` of several."""

    def learnt(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Parameters beside those of `network`, which learn with them. Raises `ConfigError` if there can be none."""

    def frozen(self, network: NetworkSpec) -> tuple[Parameter, ...]:
        """Arrays that begin as parameters do and never change."""

    def statistics(self, network: NetworkSpec) -> tuple[Statistic, ...]:
        """Arrays that follow what has been seen."""

    @property
    def batch_metrics(self) -> tuple[Metric, ...]:
        """Scalars of `targets`, once an iteration."""

    @property
    def loss_metrics(self) -> tuple[Metric, ...]:
        """Scalars of `loss`, of each minibatch; rows have the means. One is `approx_kl`, for `ppo.target_kl`."""

    def targets(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, statistics: Tree, rollout: Tree
    ) -> Targets:
        """Advantages and whatever else the loss needs, from one rollout.

        `arrays` are those that are learnt and frozen. `rollout` has the memory, `[T + 1, N, ...]`, whose last row is of
        the observations after the last step: `obs`, `actions`, `heads` (the first part of the policy's head: logits or
        mean), `values`; and of each step, `[T, N]`: `rewards`, `terminated`, `truncated`, `valid` (0 where the step
        only reset its environment: for the critic), `acts` (0 too where the action did not count: for the policy).
        Flags are floats of 0 and 1. `seed` and `iteration`, `[1]` int32, are for noise.
        """

    def warmed(self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, statistics: Tree, rollout: Tree) -> Tree:
        """The statistics after a rollout before the training; `rollout` as in `targets`."""

    def loss(
        self, ops: Ops, network: NetworkSpec, hp: Hyperparameters, arrays: Tree, head: Head, values: Array, batch: Tree
    ) -> tuple[Array, Tree]:
        """The minimised scalar on a minibatch of B transitions, and scalars by the names of `loss_metrics`.

        `head` and `values` are the network's for these transitions; `batch` has theirs of `Targets.batch`, `[B]` each,
        with `obs` and `actions`.
        """


def loss_metrics_of(algorithm: Algorithm, network: object) -> tuple[Metric, ...]:
    """The measurements of a minibatch: the algorithm's losses, and those of a network that has its own."""
    own: Mapping[str, float] = getattr(network, "own_losses", {})
    return (*algorithm.loss_metrics, *(Metric(name, f"losses/{name}") for name in own))


def metrics_of(algorithm: Algorithm, network: object = None) -> tuple[Metric, ...]:
    """Everything that an iteration measures, in the order of the columns; `network` is one, or the choice of one."""
    return (
        Metric("learning_rate", "charts/learning_rate", compared=False),
        *loss_metrics_of(algorithm, network),
        *algorithm.batch_metrics,
        Metric("gradient_norm", "losses/gradient_norm", compared=False),
        Metric("masked_fraction", "charts/masked_fraction", compared=False),
    )
