"""Environments inside a JAX program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from ppo_bench.envs.base import NO_LIMIT, GraphEnv, Seen, Start, Step
from ppo_bench.envs.dynamics.base import Autoreset, Dynamics, EnvState, Portable
from ppo_bench.mathematics.arrays import Array


class JaxEnv(GraphEnv):
    """N environments of one `Dynamics`."""

    def __init__(self, dynamics: Dynamics, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.time_limit = dynamics.time_limit if dynamics.time_limit < NO_LIMIT else None
        self.short_steps = getattr(dynamics, "short_steps", False)
        in_jax: Dynamics = dynamics.over(jnp) if isinstance(dynamics, Portable) else dynamics
        self._autoreset = Autoreset(jnp, in_jax, jax.tree.map, traced=True)
        self._start = jax.jit(self._autoreset.fresh)

    def reset(self, seeds: Sequence[int]) -> Start:
        """See `GraphEnv.reset`."""
        with _in_full():
            # A compiled function returns arrays with memory of their own, which the caller's program can be donated.
            state, obs = self._start(jnp.asarray(seeds, jnp.int32))
            return Start(self.step, state, Seen(obs))

    def step(self, state: EnvState, actions: Array) -> tuple[EnvState, Step]:
        """See `Start.step`."""
        with _in_full():
            return self._autoreset.step(state, actions)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


@contextmanager
def _in_full() -> Iterator[None]:
    """A context with 64-bit types and, on a GPU, without TF32, whatever the precision of learning."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield
