"""Brax's robot tasks, modelled on gymnasium's MuJoCo tasks, with physics in JAX (Freeman et al. 2021).

This module uses Brax's unwrapped `reset` and `step`; `DynamicsEnv` adds time limits, autoreset and seeds. Brax computes
in float32.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

with contextlib.redirect_stdout(io.StringIO()):  # MJX prints which of its optional backends are not installed
    from brax import envs

PIPELINE = "mjx"
"""The physics engine: MuJoCo's, the only one of Brax's four that is still maintained. Another one changes returns."""


class Brax:
    """`Dynamics` of a Brax task. Its state is Brax's own, a pytree of arrays `[N, ...]`; actions lie within +-1."""

    time_limit = 1_000
    """Brax's default for all tasks."""
    num_words = 2

    def __init__(self, env_id: str) -> None:
        with warnings.catch_warnings(), jax.enable_x64(False):
            warnings.simplefilter("ignore", UserWarning)  # Brax warns that its own engines are no longer maintained
            self._env = envs.get_environment(env_id.removeprefix("brax-"), backend=PIPELINE)
            obs = jax.eval_shape(self._env.reset, jax.random.key(0)).obs
        self.observation_space: spaces.Box[Any] = spaces.Box(-np.inf, np.inf, obs.shape, np.float32)
        self.action_space: spaces.Box[Any] = spaces.Box(-1.0, 1.0, (self._env.action_size,), np.float32)

    def reset(self, words: jax.Array) -> Any:
        """See `Dynamics.reset`."""
        with jax.enable_x64(False):
            keys = jax.random.wrap_key_data(jax.lax.bitcast_convert_type(words, jnp.uint32), impl="threefry2x32")
            return jax.vmap(self._env.reset)(keys)

    def step(self, state: Any, actions: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        with jax.enable_x64(False):
            state = jax.vmap(self._env.step)(state, actions.astype(jnp.float32))
            return state, state.reward, state.done.astype(bool)

    def observe(self, state: Any) -> jax.Array:
        """See `Dynamics.observe`."""
        return state.obs
