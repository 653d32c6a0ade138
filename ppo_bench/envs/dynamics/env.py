"""Environments of one `Dynamics`: part of a JAX program, or stepped by PyTorch or NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import NO_LIMIT, EnvStep, GraphEnv, PolicyInput, ResetResult
from ppo_bench.envs.dynamics.base import Autoreset, Dynamics, EnvState, PortableDynamics, State, map_fields
from ppo_bench.mathematics.arrays import Array

CHUNKS = 16
"""Number of chunks of environments that are reset one after another, where resets are costly."""


class DynamicsEnv(GraphEnv):
    """N environments of one `Dynamics`. JAX is imported only where they become part of a JAX program."""

    def __init__(self, dynamics: Dynamics, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.time_limit = dynamics.time_limit if dynamics.time_limit < NO_LIMIT else None
        self.short_steps = getattr(dynamics, "short_steps", False)
        self.portable = isinstance(dynamics, PortableDynamics)
        self._dynamics = dynamics
        self._over: dict[Any, Autoreset] = {}

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> ResetResult:
        """See `GraphEnv.reset`. PyTorch and NumPy get the same step function each time."""
        if xp.__name__ == "jax.numpy":
            with _in_full():
                state, obs = self._start(xp.asarray(seeds, xp.int32))
                return ResetResult(self.step, state, PolicyInput(obs))
        if not isinstance(self._dynamics, PortableDynamics):
            raise ConfigError("these environments are part of a JAX program: use framework=jax_xla")
        place = functools.partial(xp.asarray, device=device)
        autoreset = self._over.get(xp)
        if autoreset is None:
            autoreset = self._over[xp] = Autoreset(xp, self._dynamics.with_xp(xp, place), map_fields, traced=False)
        state, obs = autoreset.init(place(np.asarray(seeds, np.int32)))
        fields = state.dynamics if hasattr(state.dynamics, "_fields") else [None]
        if not all(hasattr(field, "shape") for field in fields):
            name = type(self._dynamics).__name__
            raise ConfigError(
                f"{name}: the state of a PortableDynamics is a NamedTuple of arrays; others are for framework=jax_xla"
            )
        return ResetResult(autoreset.step, state, PolicyInput(obs), autoreset.draw_reset_words)

    # --- In JAX -------------------------------------------------------------------------------------------------------

    def step(self, state: EnvState, actions: Array) -> tuple[EnvState, EnvStep]:
        """See `ResetResult.step`."""
        with _in_full():
            return self._in_jax.step(state, actions)

    @functools.cached_property
    def _in_jax(self) -> Autoreset:
        import jax
        import jax.numpy as jnp

        dynamics: Dynamics = (
            self._dynamics.with_xp(jnp) if isinstance(self._dynamics, PortableDynamics) else self._dynamics
        )
        in_chunks = _reset_in_chunks if getattr(dynamics, "costly_resets", False) else None
        return Autoreset(jnp, dynamics, jax.tree.map, traced=True, reset_in_chunks=in_chunks)

    @functools.cached_property
    def _start(self) -> Callable[[Array], tuple[EnvState, Array]]:
        """`Autoreset.init`, compiled: its results have memory of their own, which a program can be donated."""
        import jax

        return jax.jit(self._in_jax.init)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def _reset_in_chunks(first_states: Callable[[Array], State], done: Array, states: State) -> State:
    """Reset the environments that are `done` in a loop, a `CHUNKS`-th of all environments at a time.

    See `ResetInChunks`. The idea is that of Craftax's `OptimisticResetVecEnvWrapper` (Matthews et al. 2024), without
    environments that share a first state.
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


@contextmanager
def _in_full() -> Iterator[None]:
    """A context with JAX's 64-bit types and, on a GPU, without TF32, whatever the precision of learning."""
    import jax

    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield
