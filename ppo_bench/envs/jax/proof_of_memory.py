"""Proof of memory in JAX, with the rules of ppo_bench/envs/proof_of_memory.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ppo_bench.envs import proof_of_memory
from ppo_bench.envs.proof_of_memory import Line


class ProofOfMemory:
    """`Dynamics` of proof of memory."""

    time_limit = proof_of_memory.TIME_LIMIT
    num_words = 2

    def __init__(self) -> None:
        self.observation_space, self.action_space = proof_of_memory.observation_space(), spaces.Discrete(2)

    def reset(self, words: jax.Array) -> Line:
        """See `Dynamics.reset`."""
        return proof_of_memory.first(jnp, words)

    def step(self, state: Line, actions: jax.Array) -> tuple[Line, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        return proof_of_memory.moved(jnp, state, actions)

    def observe(self, state: Line) -> jax.Array:
        """See `Dynamics.observe`."""
        return proof_of_memory.observed(jnp, state)
