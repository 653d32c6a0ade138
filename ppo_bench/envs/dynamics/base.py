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

from ppo_bench.envs.base import EnvStep, columns
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

State = Any
"""State of N environments: a NamedTuple of arrays `[N, ...]`, or another pytree of JAX's, defined by a `Dynamics`."""


class Dynamics(Protocol):
    """The dynamics of one kind of environment, as pure functions over N environments.

    `Autoreset` adds autoreset, time limits and seeds. There are two optional attributes: `short_steps` is that of
    `GraphEnv`; `costly_resets` is true if a JAX program should compute only the resets that are due.
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


class PortableDynamics:
    """A `Dynamics` for NumPy, PyTorch and JAX: it computes with `xp`, which is `numpy`, `torch` or `jax.numpy`.

    Its states are NamedTuples of arrays.
    """

    xp: Any = np

    def with_xp(self, xp: Any, to_device: Callable[[np.ndarray], Array] = lambda array: array) -> Self:
        """A copy that computes with `xp`, and whose constants, attributes that are NumPy arrays, are
        `to_device(array)`."""
        other = copy.copy(self)
        of_classes = {name: value for cls in reversed(type(self).__mro__) for name, value in vars(cls).items()}
        for name, value in (of_classes | vars(self)).items():
            if isinstance(value, np.ndarray):
                setattr(other, name, to_device(value))
        other.xp = xp
        return other


CHUNKS = 16
"""Number of chunks of environments that are reset one after another, where resets are costly."""


class ResetWords(NamedTuple):
    """Random words of several resets of N environments, drawn at once."""

    words: Array
    """Words `[K N, W]` int32: of the next reset of each environment, then of those after it."""
    row: Array
    """Row, `[N]`, of each environment's last reset; negative before the first, when the words there are not used."""


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
    reset_words: ResetWords | None = None
    """Random words of the next resets; None if they are drawn when an environment is reset."""


class Autoreset:
    """Steps of `dynamics` with the contract of ppo_bench/envs/base.py, as pure functions of arrays of `xp`."""

    def __init__(self, xp: Any, dynamics: Dynamics, components: tuple[int, ...] = ()) -> None:
        """A JAX program draws the first states of the next episodes in every step, or, if resets are costly, those of
        the environments that are reset. PyTorch and NumPy draw them only in steps that reset an environment, or ahead
        by `draw_reset_words`. Observations are reduced to their `components`.
        """
        self.dynamics, self._components, self._xp, self._in_jax = dynamics, components, xp, xp.__name__ == "jax.numpy"
        self._costly_resets = self._in_jax and getattr(dynamics, "costly_resets", False)
        self._map: Callable[..., State] = map_fields
        if self._in_jax:
            import jax

            self._map = jax.tree.map

    def init(self, seeds: Array) -> tuple[EnvState, Array]:
        """Environments with the `seeds [N]` int32 before their first step, and their observations `[N, ...]`."""
        zeros, done = self._xp.zeros_like(seeds), self._xp.zeros_like(seeds, dtype=self._xp.bool)
        dynamics = self.dynamics.reset(self._reset_words(seeds, zeros))
        return EnvState(dynamics, seeds, zeros, zeros, done), self._observe(dynamics)

    def draw_reset_words(self, state: EnvState, num_steps: int) -> EnvState:
        """The same state with the words of all resets that `num_steps` steps can have.

        Steps after it are branch-free and short to compile: PyTorch's compiler takes a minute for the generator.
        """
        xp, (num_envs,) = self._xp, state.seeds.shape
        most = (num_steps + 1) // 2  # a reset step, then one step or more
        resets = [state.episodes + k for k in range(1, most + 1)]
        words = self._reset_words(xp.concatenate([state.seeds] * len(resets)), xp.concatenate(resets))
        row = xp.cumsum(xp.ones_like(state.seeds), 0) - 1 - num_envs
        return state._replace(reset_words=ResetWords(words, row))

    def step(self, state: EnvState, actions: Array) -> tuple[EnvState, EnvStep]:
        """State and result of a step; see `EnvStep`."""
        xp, reset, reset_words = self._xp, state.done, state.reset_words
        dynamics, reward, terminated = self.dynamics.step(state.dynamics, actions)
        episodes = state.episodes + reset
        if reset_words:
            reset_words = reset_words._replace(row=reset_words.row + len(reset) * reset)
        if self._costly_resets:

            def first_states(rows: Array) -> State:
                return self.dynamics.reset(self._reset_words(state.seeds[rows], episodes[rows]))

            dynamics = _reset_in_chunks(first_states, reset, dynamics)
        elif reset_words or self._in_jax or bool(reset.any()):
            words = reset_words.words[reset_words.row] if reset_words else self._reset_words(state.seeds, episodes)
            first = self.dynamics.reset(words)
            dynamics = self._map(lambda fresh, old: _where_rows(xp, reset, fresh, old), first, dynamics)
        steps = xp.where(reset, 0, state.steps + 1)
        reward = xp.asarray(_where_rows(xp, reset, xp.zeros_like(reward), reward), dtype=xp.float32)
        terminated, truncated = terminated & ~reset, steps >= self.dynamics.time_limit
        over = terminated | truncated
        observed: Any = self._observe(dynamics)
        step = EnvStep(observed, reward, terminated, truncated, over, reward)
        return EnvState(dynamics, state.seeds, episodes, steps, over, reset_words), step

    def _observe(self, state: State) -> Array:
        return columns(self._xp, self.dynamics.observe(state), self._components)

    def _reset_words(self, seeds: Array, episodes: Array) -> Array:
        """Words `[N, num_words]` of the reset before the `episodes`-th episode of each environment."""
        return noise.reset_words(self._xp, seeds, episodes, self.dynamics.num_words)


def _reset_in_chunks(first_states: Callable[[Array], State], done: Array, states: State) -> State:
    """Reset the environments that are `done` in a loop, a `CHUNKS`-th of all environments at a time.

    `first_states(rows)` computes the first states of the next episodes of the environments `rows`. The idea is that of
    Craftax's `OptimisticResetVecEnvWrapper` (Matthews et al. 2024), without environments that share a first state.
    """
    import jax
    import jax.numpy as jnp

    (num_envs,) = done.shape
    size = -(-num_envs // CHUNKS)
    types = jax.eval_shape(first_states, jnp.arange(size))
    # As `jnp.where` of both would. Random keys have a type of their own, which no other number has.
    states = jax.tree.map(
        lambda old, new: old if old.dtype == new.dtype else old.astype(jnp.result_type(old, new)), states, types
    )

    def reset_chunk(carry: tuple[State, Array]) -> tuple[State, Array]:
        states, waiting = carry
        (rows,) = jnp.nonzero(waiting, size=size, fill_value=num_envs)  # rows past the last one are dropped
        first = first_states(rows)
        states = jax.tree.map(lambda old, new: old.at[rows].set(new, mode="drop"), states, first)
        return states, waiting.at[rows].set(False, mode="drop")

    result: State = jax.lax.while_loop(lambda carry: carry[1].any(), reset_chunk, (states, done))[0]
    return result


def map_fields(function: Callable[..., Array], *states: Any) -> Any:
    """The NamedTuple whose fields are `function` of the fields of `states`."""
    return type(states[0])(*map(function, *states))


def _where_rows(xp: Any, condition: Array, a: Array, b: Array) -> Array:
    """Rows of `a [N, ...]` where `condition [N]` is true, else rows of `b [N, ...]`."""
    return xp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
