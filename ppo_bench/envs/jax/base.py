"""Environments written in JAX: what one states, and what all share (limits, next-step autoreset, random resets).

Classic control computes in float64 whatever the precision of learning, as gymnasium's does: small errors of an unstable
system grow with every step (8% in CartPole), and in float32 its trajectories are another's after 75 steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ppo_bench.envs.base import GraphEnv, Seen, Start, Step
from ppo_bench.mathematics import noise

State = Any
"""A pytree of arrays `[N, ...]` that an environment's dynamics define."""


class Dynamics(Protocol):
    """One kind of environment, as functions over N of them; ends, time limits and seeds are none of its business."""

    time_limit: int
    """Steps after which an episode is truncated."""
    num_words: int
    """Random words that a reset takes."""

    @property
    def observation_space(self) -> spaces.Box[Any]:
        """Of one environment."""

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box[Any]:
        """Of one environment."""

    def reset(self, words: jax.Array) -> State:
        """First states from random words `[N, num_words]` int32."""

    def step(self, state: State, actions: jax.Array) -> tuple[State, jax.Array, jax.Array]:
        """States, rewards `[N]` and terminated `[N]` bool after integer actions `[N]` or floating ones `[N, A]`."""

    def observe(self, state: State) -> jax.Array:
        """Observations `[N, ...]` in the space's dtype."""


class JaxEnvState(NamedTuple):
    """Where N environments stand; arrays `[N]`."""

    dynamics: State
    seeds: jax.Array
    """int32, from (seed, iteration of the last restart, env); resets follow from them and from `episodes`."""
    episodes: jax.Array
    """int32, resets since."""
    steps: jax.Array
    """int32, in this episode."""
    done: jax.Array
    """bool: the next step only resets this environment."""


class JaxEnv(GraphEnv):
    """N environments of one `Dynamics`."""

    def __init__(self, dynamics: Dynamics, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.time_limit = dynamics.time_limit
        self._dynamics = dynamics
        self._start = jax.jit(self._fresh)

    def reset(self, seeds: Sequence[int]) -> Start:
        """See `GraphEnv.reset`."""
        with _in_full():
            # Compiled, which makes each array anew: a program reuses the memory of those that it is given.
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
        """First states of the `episodes`-th episode of each environment."""
        return self._dynamics.reset(noise.reset_words(jnp, seeds, episodes, self._dynamics.num_words))

    def close(self) -> None:
        """Nothing to release."""


@contextmanager
def _in_full() -> Iterator[None]:
    """The dynamics' own types, and on a GPU no products in TF32, whatever the precision of learning."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def _where(condition: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """`jnp.where` by rows of `[N, ...]`, `condition [N]`."""
    return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
