"""`Runner`, a framework's execution of PPO, and the `TrainingSpec` from which it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Arrays, Tree
from ppo_bench.mathematics.distributions import ActionBounds, action_bounds
from ppo_bench.mathematics.normalize import AllReduceMoments, single_device_moments
from ppo_bench.mathematics.shards import SINGLE_SHARD, ProcessGroup, Shard
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import NetworkOutputs, NetworkSpec
from ppo_bench.tuning.switches import ON, Tuning

State = TypeVar("State")
Policy = Callable[[np.ndarray, np.ndarray, Tree], NetworkOutputs]
"""Inference function of a network: `(obs, episode_start, carry) -> NetworkOutputs`, as `NetworkSpec.step`.

All arrays are NumPy arrays on the host; `episode_start` is bool.
"""


@dataclass(frozen=True)
class TrainingSpec:
    """Everything that a runner is built from: environment, network, algorithm, hyperparameters, device."""

    env: VectorEnv | GraphEnv
    network: NetworkSpec
    algorithm: Ppo
    ppo: Hyperparameters
    num_iterations: int
    """Number of iterations of the whole training, over which the learning rate is annealed."""
    precision: str
    """A name of `ppo_bench.mathematics.precision.PRECISIONS`."""
    device: str
    """Device name: auto, cpu, cuda or cuda:<i>."""
    rescale_actions: bool = False
    """Whether continuous actions of the policy lie in [-1, 1] and are rescaled to the environment's bounds."""
    tuning: Tuning = ON
    devices: int = 1
    """Number of devices that share the environments, in equal parts."""
    shard: Shard = SINGLE_SHARD
    """Part of the environments that this process has: all of them, or one of several equal parts."""
    process_group: ProcessGroup | None = None
    """Collective operations with the processes that have the other parts; None if there are none."""
    local_shard: Shard = SINGLE_SHARD
    """Position of this process among those of its machine."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` if the fields are incompatible with each other."""
        self.action_bounds  # noqa: B018 (raises if they cannot be rescaled)
        self.algorithm.parameters(self.network)  # raises if it cannot learn from such observations
        if self.ppo.norm_obs and self.network.uint8:
            raise ConfigError(
                "ppo.norm_obs=true is for observations of floats; the network scales those of bytes: use false"
            )
        self._require_equal_minibatches()

    def _require_equal_minibatches(self) -> None:
        """Raise `ConfigError` unless every shard contributes equally many samples to each minibatch."""
        samples, text = self.ppo.num_envs // self.ppo.shards, f"ppo.num_envs / ppo.shards={self.ppo.shards}"
        if self.network.learns_from_sequences:
            text += " (this network learns from whole environments)"
        else:
            samples, text = samples * self.ppo.num_steps, f"ppo.num_steps x {text}"
        if samples % self.ppo.num_minibatches:
            raise ConfigError(
                f"ppo.num_minibatches={self.ppo.num_minibatches} does not divide {samples}, which is {text}: choose a "
                "divisor"
            )

    @property
    def num_envs(self) -> int:
        """Number of environments in this process."""
        return self.shard.size(self.ppo.num_envs)

    @property
    def first_env(self) -> int:
        """Index of the first of these environments among all."""
        return self.shard.first(self.ppo.num_envs)

    def env_seeds(self, seed: int, iteration: int) -> list[int]:
        """Seeds of this process's environments for a reset by the key (seed, iteration)."""
        return noise.env_seeds(seed, iteration, self.ppo.num_envs)[self.first_env :][: self.num_envs]

    @property
    def all_reduce_moments(self) -> AllReduceMoments:
        """Moments over all processes, from those of this one."""
        return self.process_group.all_reduce_moments if self.process_group else single_device_moments

    @cached_property
    def action_bounds(self) -> ActionBounds | None:
        """Bounds of continuous actions; None for discrete ones. Raises `ConfigError` if they cannot be rescaled."""
        return action_bounds(self.env.action_space, self.rescale_actions)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All trained parameters: the network's, then the algorithm's."""
        return (*self.network.parameters, *self.algorithm.parameters(self.network))


NO_INFO: Mapping[str, float] = {}


class Episode(NamedTuple):
    """A finished episode: `step` counts the environment steps of its iteration until its end, `env` is its row."""

    step: int
    env: int
    episode_return: float
    length: int
    info: Mapping[str, float] = NO_INFO
    """Numbers of `env.info` that the environment reported in the episode's last step, by name."""


Metrics = dict[str, float]
"""Measurements of one iteration, named and ordered by `ppo_bench.algorithms.ppo.metrics_of`. Losses are means
over minibatches, `gradient_norm` is measured before clipping, and `masked_fraction` is the share of steps that only
reset an environment, whether or not `mask_resets` excludes them. NaN where undefined."""


IterationReports = list[tuple[Metrics, list[Episode]]]
"""Metrics and finished episodes of an iteration, for every run of a program in order."""


class Runner(Protocol[State]):
    """A framework's execution of PPO. Methods take a state and return a new one; the old one must not be reused."""

    execution: Mapping[str, object]
    """Execution settings, which are recorded with every run: device, threads, precision flags."""

    def init(self, seed: int) -> State:
        """State with initial weights and reset environments; `seed` determines all randomness."""

    def iterate(self, state: State, until: int = 0) -> tuple[State, Metrics, list[Episode]]:
        """Run one iteration: rollout, advantages, update. The episodes are those that finished in it, in order.

        The device may already compute later iterations, up to `until`. Once `iterate` has returned that one, the state
        can be exported.
        """

    def export(self, state: State) -> Arrays:
        """Copies of the arrays of ppo_bench/runners/array_specs.py, by name, in the framework-neutral layout.

        The state of the environments (`envs.*`) serves to replay recordings; it is absent if the environments are part
        of a program.
        """

    def restore(self, arrays: Arrays, restore_envs: bool = False) -> State:
        """State from the arrays of `export`, with reset environments. Raises `ConfigError` if the arrays do not fit.

        With `restore_envs` the environments, which replay a recording, are not reset: their arrays are restored too.
        """

    def restart_envs(self, state: State) -> State:
        """State with environments reset by its key (seed, iteration); current episodes and their sums are dropped."""

    def close(self) -> None:
        """Release environments and devices."""
