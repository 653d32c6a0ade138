"""How a framework plugs in: the Runner interface, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from ppo_bench.algorithms.base import Algorithm, Hyperparameters, shares_minibatches
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.mathematics.arrays import Arrays, Tree
from ppo_bench.mathematics.normalize import ActionBounds, Moments, action_bounds
from ppo_bench.mathematics.parts import WHOLE, Part
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.network import NetworkSpec, Outputs
from ppo_bench.runners.opponents import NONE, Opponents, Sides, sides
from ppo_bench.tuning.switches import ON, Tuning

State = TypeVar("State")
Policy = Callable[[np.ndarray, np.ndarray, Tree], Outputs]
"""A network that does not learn: `(obs, start, carry) -> (head, values, carry)`, as `NetworkSpec.forward`, all of them
on the host. `start` is bool."""


class Peers(Protocol):
    """The processes that share a training, each with a part of its environments."""

    def total(self, x: Any) -> Any:
        """The sum of a framework's array over the processes, the same bits in each."""

    def gather(self, x: Any) -> Any:
        """A framework's array of every process, stacked in their order."""

    def across(self, seen: Moments) -> Moments:
        """Moments of the entries of all processes, arrays of NumPy, from those of this one's."""

    def tick(self) -> None:
        """Count a step of work, for those who watch that every process goes on."""


@dataclass(frozen=True)
class Problem:
    """All that a runner is built from: what to learn, with which network, by which numbers."""

    env: VectorEnv | GraphEnv
    network: NetworkSpec
    algorithm: Algorithm
    ppo: Hyperparameters
    num_iterations: int
    """Length of the whole training; the learning rate is annealed over it."""
    precision: str
    """A name of `ppo_bench.mathematics.precision.PRECISIONS`."""
    device: str
    """auto, cpu, cuda or cuda:<i>."""
    rescale_actions: bool = False
    """The policy's actions of floats lie between -1 and 1, and are stretched to the environment's bounds."""
    tuning: Tuning = ON
    opponents: Opponents = NONE
    players: int = 1
    """How many rows are one game."""
    devices: int = 1
    """How many devices share the environments, in equal parts."""
    part: Part = WHOLE
    """The environments that are here: all of them, or those of one process of several."""
    peers: Peers | None = None
    """The other processes, which have the rest."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` if its parts do not go together."""
        self.action_bounds  # noqa: B018 (raises if they cannot be rescaled)
        self.algorithm.learnt(self.network)  # raises if it cannot learn from such observations
        if self.ppo.norm_obs and self.network.uint8:
            raise ConfigError("ppo.norm_obs=true is for observations of floats; the network scales those of bytes")
        self._require_equal_minibatches()
        if self.devices > 1 and not shares_minibatches(self.algorithm):
            raise ConfigError(
                f"devices={self.devices}: algorithm={self.algorithm.name} states a loss without `whole`, which "
                "several devices that share a minibatch need (docs/own.md); use devices=1"
            )

    def _require_equal_minibatches(self) -> None:
        """Raise `ConfigError` unless every shard gives as much to each minibatch."""
        shards, minibatches = self.ppo.shards, self.ppo.num_minibatches
        rows = self.learning_rows * self.part.count // shards
        of_shard = "" if shards == 1 else f" of each of ppo.shards={shards}"
        if self.sides is not None and shards > 1 and self.ppo.num_envs // shards % self.players**2:
            raise ConfigError(
                f"ppo.num_envs={self.ppo.num_envs}: with opponents=past each of ppo.shards={shards} needs a "
                f"multiple of {self.players**2} rows, so that each player plays the past equally often"
            )
        if self.network.sequences and rows % minibatches:
            shown = f"ppo.num_envs={rows}" if self.sides is None else f"the {rows} rows that do not play the past"
            if shards > 1:
                shown = f"the {rows} rows{of_shard}"
            raise ConfigError(
                f"ppo.num_minibatches={minibatches} does not divide {shown}, and this network learns from whole "
                "environments: choose a divisor"
            )
        if rows * self.ppo.num_steps % minibatches:
            what = f"rows{of_shard}" if shards > 1 else "rows that do not play the past"
            raise ConfigError(
                f"ppo.num_minibatches={minibatches} does not divide the {rows} {what} x "
                f"ppo.num_steps={self.ppo.num_steps}: choose a divisor"
            )

    @property
    def num_envs(self) -> int:
        """How many environments are here."""
        return self.part.size(self.ppo.num_envs)

    @cached_property
    def action_bounds(self) -> ActionBounds | None:
        """Bounds of actions of floats; None for choices. Raises `ConfigError` if they cannot be rescaled."""
        return action_bounds(self.env.action_space, self.rescale_actions)

    @cached_property
    def sides(self) -> Sides | None:
        """Which rows learn, and which play the past; None where all learn."""
        return sides(self.num_envs, self.players) if self.opponents.pool_size and self.players > 1 else None

    @property
    def learning_rows(self) -> int:
        """How many of the rows that are here learn."""
        return self.num_envs if self.sides is None else len(self.sides.own)

    def of_those_who_learn(self, episodes: list[Episode]) -> list[Episode]:
        """The episodes of the rows that learn."""
        return episodes if self.sides is None else [episode for episode in episodes if episode.env in self.sides.own]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All that is learnt: the network's parameters, then the algorithm's."""
        return (*self.network.parameters, *self.algorithm.learnt(self.network))


NOTHING: Mapping[str, float] = {}


class Episode(NamedTuple):
    """One finished episode: after how many environment steps of its iteration, in which environment."""

    step: int
    env: int
    episode_return: float
    length: int
    told: Mapping[str, float] = NOTHING
    """Numbers of `env.info` that the environment gave as it ended."""


Metrics = dict[str, float]
"""Measurements of one iteration, named and ordered by `ppo_bench.algorithms.base.metrics_of`. Losses are means
over minibatches, `gradient_norm` is that before clipping, and `masked_fraction` the share of the steps that only reset
an environment, whether or not `mask_resets` leaves them out. NaN where undefined."""


class Runner(Protocol[State]):
    """One framework's execution of PPO. State goes in and comes out; a state that went in is not to be used again."""

    execution: Mapping[str, object]
    """How it executes: device, threads, precision flags. Recorded with every run."""

    def init(self, seed: int) -> State:
        """Initial weights and fresh environments; everything random follows from `seed`."""

    def step(self, state: State) -> tuple[State, Metrics, list[Episode]]:
        """One iteration: rollout, advantages, update. Episodes are those that finished in it, in order."""

    def export(self, state: State) -> Arrays:
        """The arrays that ppo_bench/runners/declared.py declares, by name, in the neutral layout; copies.

        Where the environments stand (`envs.*`) is for those who replay them, and left out where they are part of a
        program.
        """

    def restore(self, arrays: Arrays, carried: bool = False) -> State:
        """The state that `export` gave, with fresh environments. Raises `ConfigError` if it does not fit.

        `carried` environments stand where `export` left them and are not reset: those that replay a recording.
        """

    def in_progress(self, state: State) -> np.ndarray:
        """Steps so far of the episode in progress in each environment, `[N]` int64; 0 where the last one is over."""

    def restart(self, state: State, iteration: int) -> State:
        """Fresh environments, seeded by (seed, iteration); episodes in progress and their accumulators are dropped."""

    def close(self) -> None:
        """Release environments and devices."""


class Framework(Protocol):
    """A choice of the group `framework`: how PPO is executed. Made from its YAML file, whose keys are its fields."""

    takes_graph_envs: ClassVar[bool]
    """Whether its runner can take a `GraphEnv` into its program."""
    process_per_device: ClassVar[bool]
    """Whether several devices take as many processes (ppo_bench/runs/group.py), or one."""
    name: str

    @property
    def compiles(self) -> bool:
        """Whether its first iterations also compile, which is then reported apart."""

    @property
    def iterations_per_call(self) -> int:
        """Iterations of a block: its runner may be ahead of those that it has returned, up to the end of the block, and
        exports a state only there."""

    def require(self) -> None:
        """Raise `ConfigError` if its packages are not installed or an option is out of range."""

    def begin(self, num_seeds: int = 1, tuning: Tuning = ON, devices: int = 1) -> None:
        """Say what has to be said before its package, or an environment that uses it, begins; first of all."""

    def runner(self, problem: Problem) -> Runner[Any]:
        """The runner for `problem`."""

    def seeds_runner(self, problem: Problem) -> Any:
        """The `SeedsRunner` for `problem`; see ppo_bench/runners/seeds.py. Raises `ConfigError` if there is none."""

    def policy(self, network: NetworkSpec, arrays: Arrays, precision: str, device: str) -> Policy:
        """The policy whose parameters are in `arrays`, as a runner exports them; for `precision` and `device` see
        `Problem`. Raises `ConfigError` if they are not those of `network`.
        """
