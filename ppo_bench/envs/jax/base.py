"""Environments written in JAX: the interface of their dynamics, and the time limits, autoreset and resets they share.

Classic control computes in float64, as gymnasium does, whatever the precision of learning: in an unstable system small
errors grow with every step, and float32 trajectories soon differ from gymnasium's (docs/architecture.md, "Decisions").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ppo_bench.envs.base import NO_LIMIT, GraphEnv, Seen, Start, Step
from ppo_bench.mathematics import noise

State = Any
"""State of N environments: a pytree of arrays `[N, ...]`, defined by a `Dynamics`."""


class Dynamics(Protocol):
    """The dynamics of one kind of environment, as pure functions over N environments.

    `JaxEnv` adds autoreset, time limits and seeds. An optional attribute `short_steps` is that of `GraphEnv`.
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

    def reset(self, words: jax.Array) -> State:
        """Initial states, from random words `[N, num_words]` int32."""

    def step(self, state: State, actions: jax.Array) -> tuple[State, jax.Array, jax.Array]:
        """Next states, rewards `[N]` and terminated `[N]` bool after actions, integers `[N]` or floats `[N, A]`."""

    def observe(self, state: State) -> jax.Array:
        """Observations `[N, ...]` in the space's dtype."""


class JaxEnvState(NamedTuple):
    """State of a `JaxEnv` with N environments; arrays `[N]`."""

    dynamics: State
    """State of the dynamics."""
    seeds: jax.Array
    """Seeds, int32. They and `episodes` determine the initial states of episodes."""
    episodes: jax.Array
    """Number of episodes since the last restart, int32; the first is 0."""
    steps: jax.Array
    """Number of steps in the current episode, int32."""
    done: jax.Array
    """Flags, bool, of the environments whose next step is a reset step."""


class JaxEnv(GraphEnv):
    """N environments of one `Dynamics`."""

    def __init__(self, dynamics: Dynamics, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.time_limit = dynamics.time_limit if dynamics.time_limit < NO_LIMIT else None
        self.short_steps = getattr(dynamics, "short_steps", False)
        self._dynamics = dynamics
        self._start = jax.jit(self._fresh)

    def reset(self, seeds: Sequence[int]) -> Start:
        """See `GraphEnv.reset`."""
        with _in_full():
            # A compiled function returns arrays with memory of their own, which the caller's program can be donated.
            state, obs = self._start(jnp.asarray(seeds, jnp.int32))
            return Start(self.step, state, Seen(obs))

    def _fresh(self, seeds: jax.Array) -> tuple[JaxEnvState, jax.Array]:
        zeros = jnp.zeros_like(seeds)
        dynamics = self._first(seeds, zeros)
        state = JaxEnvState(dynamics, seeds, zeros, zeros, jnp.zeros_like(seeds, bool))
        return state, self._dynamics.observe(dynamics)

    def step(self, state: JaxEnvState, actions: jax.Array) -> tuple[JaxEnvState, Step]:
        """See `Start.step`."""
        with _in_full():
            reset, goes_on = state.done, ~state.done
            moved, reward, terminated = self._dynamics.step(state.dynamics, actions)
            episodes = state.episodes + reset
            first = self._first(state.seeds, episodes)
            dynamics = jax.tree.map(lambda fresh, old: _where(reset, fresh, old), first, moved)
            steps = jnp.where(reset, 0, state.steps + 1)
            reward = _where(reset, jnp.zeros_like(reward), reward).astype(jnp.float32)
            terminated, truncated = terminated & goes_on, steps >= self._dynamics.time_limit
            over = terminated | truncated
            step: tuple[Any, ...] = (self._dynamics.observe(dynamics), reward, terminated, truncated, over, reward)
            return JaxEnvState(dynamics, state.seeds, episodes, steps, over), Step(*step)

    def _first(self, seeds: jax.Array, episodes: jax.Array) -> State:
        """Initial states of the `episodes`-th episode of each environment."""
        return self._dynamics.reset(noise.reset_words(jnp, seeds, episodes, self._dynamics.num_words))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


@contextmanager
def _in_full() -> Iterator[None]:
    """A context with 64-bit types and, on a GPU, without TF32, whatever the precision of learning."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def _where(condition: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Rows of `a [N, ...]` where `condition [N]` is true, else rows of `b [N, ...]`."""
    return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
