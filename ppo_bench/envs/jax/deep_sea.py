"""Deep sea in JAX, with the rules of ppo_bench/envs/deep_sea.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gymnasium import spaces

from ppo_bench.envs import deep_sea
from ppo_bench.envs.deep_sea import Diver


class DeepSea:
    """`Dynamics` of deep sea in one size; every episode begins at the top left."""

    num_words = 1
    """The word is not used."""

    def __init__(self, env_id: str) -> None:
        self._size = int(env_id.removeprefix("DeepSea").removesuffix("-v0"))
        self._right = deep_sea.right_actions(self._size)
        self.time_limit = self._size
        self.observation_space, self.action_space = deep_sea.observation_space(self._size), spaces.Discrete(2)

    def reset(self, words: jax.Array) -> Diver:
        """See `Dynamics.reset`."""
        return Diver(jnp.zeros_like(words[:, 0]), jnp.zeros_like(words[:, 0]))

    def step(self, state: Diver, actions: jax.Array) -> tuple[Diver, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        return deep_sea.moved(jnp, self._size, jnp.asarray(self._right), state, actions)

    def observe(self, state: Diver) -> jax.Array:
        """See `Dynamics.observe`."""
        return deep_sea.observed(jnp, self._size, state)
