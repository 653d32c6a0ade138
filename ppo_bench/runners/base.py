"""How a framework plugs in: the Runner interface, and what it is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.errors import ConfigError
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.ppo import Head

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")

State = TypeVar("State")
Arrays = dict[str, np.ndarray]
Policy = Callable[[np.ndarray], tuple[Head, np.ndarray]]
"""The policy's head and values `[N]` for observations `[N, ...]` as the network takes them, all of them on the host."""


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

    @property
    def batch_size(self) -> int:
        """Transitions of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        """Transitions of one gradient step."""
        return self.batch_size // self.num_minibatches


@dataclass(frozen=True)
class Problem:
    """All that a runner is built from: what to learn, with which network, by which numbers."""

    env: VectorEnv | GraphEnv
    network: NetworkSpec
    ppo: Hyperparameters
    num_iterations: int
    """Length of the whole training; the learning rate is annealed over it."""
    precision: str
    """A name of `ppo_bench.precision.PRECISIONS`."""
    device: str
    """auto, cpu, cuda or cuda:<i>."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` if its parts do not go together."""
        if self.ppo.norm_obs and self.network.uint8:
            raise ConfigError("ppo.norm_obs=true is for observations of floats; the network scales those of bytes")


def has_nvidia_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU that is not hidden from this process, seen by a framework or not."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1", "NoDevFiles"):
        return False
    return any(NVIDIA_GPUS.glob("*")) or any(Path("/dev").glob("nvidia[0-9]*"))  # a sandbox may have the second alone


class Episode(NamedTuple):
    """One finished episode: after how many environment steps of its iteration, in which environment."""

    step: int
    env: int
    episode_return: float
    length: int


class Metrics(NamedTuple):
    """What one iteration measured; means over its minibatches unless said otherwise. NaN where undefined."""

    learning_rate: float
    policy_loss: float
    value_loss: float
    entropy: float
    old_approx_kl: float
    approx_kl: float
    clip_fraction: float
    explained_variance: float
    """Of the values that the rollout's policy gave, over the batch."""
    gradient_norm: float
    """Before clipping."""
    masked_fraction: float
    """Share of the steps that only reset an environment, whether or not `mask_resets` leaves them out."""


class Runner(Protocol[State]):
    """One framework's execution of PPO. State goes in and comes out; a state that went in is not to be used again."""

    execution: Mapping[str, object]
    """How it executes: device, threads, precision flags. Recorded with every run."""

    def init(self, seed: int) -> State:
        """Initial weights and fresh environments; everything random follows from `seed`."""

    def step(self, state: State) -> tuple[State, Metrics, list[Episode]]:
        """One iteration: rollout, advantages, update. Episodes are those that finished in it, in order."""

    def export(self, state: State) -> Arrays:
        """Parameters, Adam's moments, normalisation statistics and counters by name, in the neutral layout; copies.

        Also where the environments stand (`envs.*`), for those who replay them.
        """

    def restore(self, arrays: Arrays, carried: bool = False) -> State:
        """The state that `export` gave, with fresh environments. Raises `ConfigError` if it does not fit.

        `carried` environments stand where `export` left them and are not reset: those that replay a recording.
        """

    def restart(self, state: State, iteration: int) -> State:
        """Fresh environments, seeded by (seed, iteration); episodes in progress and their accumulators are dropped."""

    def close(self) -> None:
        """Release environments and devices."""


def fitting(arrays: Arrays, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array `name` of a checkpoint. Raises `ConfigError` if it is not there in this shape."""
    if name not in arrays:
        raise ConfigError(
            f"the checkpoint has no {name}: it is of another network; use the one that it was trained with"
        )
    if arrays[name].shape != shape:
        raise ConfigError(
            f"{name} is {list(arrays[name].shape)} in the checkpoint and {list(shape)} in this network: "
            "use the network that it was trained with"
        )
    return arrays[name]


class Framework(Protocol):
    """A choice of the group `framework`: how PPO is executed. Made from its YAML file, whose keys are its fields."""

    takes_graph_envs: ClassVar[bool]
    """Whether its runner can take a `GraphEnv` into its program."""
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

    def begin(self, num_seeds: int = 1) -> None:
        """Say what has to be said before its package, or an environment that uses it, begins; first of all."""

    def runner(self, problem: Problem) -> Runner[Any]:
        """The runner for `problem`."""

    def seeds_runner(self, problem: Problem) -> Any:
        """The `SeedsRunner` for `problem`; see ppo_bench/runners/seeds.py. Raises `ConfigError` if there is none."""

    def policy(self, network: NetworkSpec, arrays: Arrays, precision: str, device: str) -> Policy:
        """The policy whose parameters are in `arrays`, as a runner exports them; for `precision` and `device` see
        `Problem`. Raises `ConfigError` if they are not those of `network`.
        """
