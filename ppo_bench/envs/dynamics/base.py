"""Dynamics of environments, and the time limits, autoreset and resets that they share, over any array library.

Classic control computes in float64, as gymnasium does, whatever the precision of learning: in an unstable system small
errors grow with every step, and float32 trajectories soon differ from gymnasium's (docs/architecture.md, "Decisions").
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import Step
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

State = Any
"""State of N environments: a NamedTuple of arrays `[N, ...]`, or another pytree of JAX's, defined by a `Dynamics`."""


class Dynamics(Protocol):
    """The dynamics of one kind of environment, as pure functions over N environments.

    `Autoreset` adds autoreset, time limits and seeds. An optional attribute `short_steps` is that of `GraphEnv`.
    """

    time_limit: int
    """Steps after which an episode is truncated; `NO_LIMIT` if it never is."""
    num_words: int
    """Number of random words that a reset takes."""

    @property
    def observation_space(self) -> spaces.Box[Any]:
        """Observation space of one environment."""

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box[Any]:
        """Action space of one environment."""

    def reset(self, words: Array) -> State:
        """Initial states, from random words `[N, num_words]` int32."""

    def step(self, state: State, actions: Array) -> tuple[State, Array, Array]:
        """Next states, rewards `[N]` and terminated `[N]` bool after actions, integers `[N]` or floats `[N, A]`."""

    def observe(self, state: State) -> Array:
        """Observations `[N, ...]` in the space's dtype."""


class Portable:
    """A `Dynamics` for NumPy, PyTorch and JAX: it computes with `xp`, which is `numpy`, `torch` or `jax.numpy`."""

    xp: Any = np

    def over(self, xp: Any) -> Self:
        """A copy that computes with `xp`."""
        other = copy.copy(self)
        other.xp = xp
        return other


class EnvState(NamedTuple):
    """State of N environments with autoreset; arrays `[N]`."""

    dynamics: State
    """State of the dynamics."""
    seeds: Array
    """Seeds, int32. They and `episodes` determine the initial states of episodes."""
    episodes: Array
    """Number of episodes since the last restart, int32; the first is 0."""
    steps: Array
    """Number of steps in the current episode, int32."""
    done: Array
    """Flags, bool, of the environments whose next step is a reset step."""


class Autoreset:
    """Steps of `dynamics` with the contract of ppo_bench/envs/base.py, as pure functions of arrays of `xp`."""

    def __init__(self, xp: Any, dynamics: Dynamics, map_arrays: Callable[..., State], traced: bool) -> None:
        """`map_arrays(function, *states)` applies a function to the arrays of states, one by one.

        If `traced`, the functions become part of a program, which draws the first states of the next episodes in every
        step; otherwise they are drawn only in steps that reset an environment.
        """
        self.dynamics, self._xp, self._map, self._traced = dynamics, xp, map_arrays, traced

    def fresh(self, seeds: Array) -> tuple[EnvState, Array]:
        """Environments with the `seeds [N]` int32 before their first step, and their observations `[N, ...]`."""
        zeros, done = self._xp.zeros_like(seeds), self._xp.zeros_like(seeds, dtype=self._xp.bool)
        dynamics = self._first(seeds, zeros)
        return EnvState(dynamics, seeds, zeros, zeros, done), self.dynamics.observe(dynamics)

    def step(self, state: EnvState, actions: Array) -> tuple[EnvState, Step]:
        """State and result of a step; see `Step`."""
        xp, reset = self._xp, state.done
        dynamics, reward, terminated = self.dynamics.step(state.dynamics, actions)
        episodes = state.episodes + reset
        if self._traced or bool(reset.any()):
            first = self._first(state.seeds, episodes)
            dynamics = self._map(lambda fresh, old: _where(xp, reset, fresh, old), first, dynamics)
        steps = xp.where(reset, 0, state.steps + 1)
        reward = xp.asarray(_where(xp, reset, xp.zeros_like(reward), reward), dtype=xp.float32)
        terminated, truncated = terminated & ~reset, steps >= self.dynamics.time_limit
        over = terminated | truncated
        observed: Any = self.dynamics.observe(dynamics)
        step = Step(observed, reward, terminated, truncated, over, reward)
        return EnvState(dynamics, state.seeds, episodes, steps, over), step

    def _first(self, seeds: Array, episodes: Array) -> State:
        """Initial states of the `episodes`-th episode of each environment."""
        return self.dynamics.reset(noise.reset_words(self._xp, seeds, episodes, self.dynamics.num_words))


def map_fields(function: Callable[..., Array], *states: Any) -> Any:
    """The NamedTuple whose fields are `function` of the fields of `states`."""
    return type(states[0])(*map(function, *states))


def _where(xp: Any, condition: Array, a: Array, b: Array) -> Array:
    """Rows of `a [N, ...]` where `condition [N]` is true, else rows of `b [N, ...]`."""
    return xp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
