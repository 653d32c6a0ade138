"""Environments with gymnax's interface (Lange 2022), such as gymnax's own and Craftax's, as `Dynamics`.

Of an environment only `reset_env` and `step_env` are used, which do not reset by themselves; `DynamicsEnv` adds time
limits, autoreset and seeds. It computes in 32 bits, and needs no package of gymnax's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import NO_LIMIT

LIMITS = ("max_steps_in_episode", "max_timesteps")
"""Names that gymnax and Craftax have for the time limit among the environment's parameters."""

COSTLY_RESET_FLOPS = 1_000_000
"""Operations of a reset from which only the resets that are due are computed: Craftax makes a world by 18 million,
gymnax's own environments take some hundreds."""
_PRNG = "threefry2x32"
"""The generator of keys of two words, whatever `JAX_DEFAULT_PRNG_IMPL` says."""


class GymnaxState(NamedTuple):
    """State of N environments; arrays `[N, ...]`."""

    env: Any
    """The environment's own state."""
    obs: jax.Array
    """Observations of that state."""
    key: jax.Array
    """Random keys of the current episodes, `[N, 2]` uint32. Randomness in a step follows from the key and the step."""
    steps: jax.Array
    """Number of steps in the current episode, int32."""


def _reset_flops(env: Any, params: Any) -> float:
    """Number of floating-point operations of a reset, as JAX estimates it for a CPU; infinity if there is no CPU.

    JAX has no estimate for GPUs before a program is compiled.
    """
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return math.inf
    with jax.default_device(cpu):
        estimate = jax.jit(env.reset_env).lower(jax.random.PRNGKey(0), params).cost_analysis()
    return math.inf if estimate is None else float(estimate.get("flops", 0.0))


class Gymnax:
    """`Dynamics` of an environment with gymnax's interface."""

    num_words = 2

    def __init__(self, env: Any, params: Mapping[str, Any]) -> None:
        """`params` replace default parameters of these names."""
        with jax.enable_x64(False), jax.default_prng_impl(_PRNG):
            self._env = env
            self._params = dataclasses.replace(env.default_params, **params) if params else env.default_params
            observation_space, action_space = env.observation_space(self._params), env.action_space(self._params)
            self.costly_resets = _reset_flops(env, self._params) > COSTLY_RESET_FLOPS
            obs: Any = jax.eval_shape(env.reset_env, jax.random.PRNGKey(0), self._params)[0]
        limit = next((name for name in LIMITS if hasattr(self._params, name)), None)
        self.time_limit = int(getattr(self._params, limit)) if limit else NO_LIMIT
        if limit and not hasattr(env, "is_truncated"):  # before gymnax 1.0 steps at the limit end episodes as any end
            self._params = dataclasses.replace(self._params, **{limit: NO_LIMIT})
        self._choices = int(observation_space.n) if hasattr(observation_space, "n") else None
        self.observation_space = self._supported_observation_space(obs)
        self.action_space = self._supported_action_space(action_space)

    def _supported_observation_space(self, obs: jax.ShapeDtypeStruct) -> spaces.Box[Any]:
        if self._choices:
            return spaces.Box(0.0, 1.0, (self._choices,), np.float32)
        if obs.dtype in (np.bool_, np.uint8):
            return spaces.Box(0, 1 if obs.dtype == np.bool_ else 255, obs.shape, obs.dtype.type)
        return spaces.Box(-np.inf, np.inf, obs.shape, np.float32)

    def _supported_action_space(self, own: Any) -> spaces.Discrete | spaces.Box[Any]:
        if hasattr(own, "n"):
            return spaces.Discrete(int(own.n))
        low, high = (np.broadcast_to(np.asarray(bound, np.float32), own.shape) for bound in (own.low, own.high))
        return spaces.Box(low, high, dtype=np.float32)

    def reset(self, words: jax.Array) -> GymnaxState:
        """See `Dynamics.reset`."""
        key = jax.lax.bitcast_convert_type(words, jnp.uint32)
        with jax.enable_x64(False), jax.default_prng_impl(_PRNG):
            obs, env = jax.vmap(self._env.reset_env, (0, None))(key, self._params)
            return GymnaxState(env, obs, key, jnp.zeros(len(key), jnp.int32))

    def step(self, state: GymnaxState, actions: jax.Array) -> tuple[GymnaxState, jax.Array, jax.Array]:
        """See `Dynamics.step`."""
        with jax.enable_x64(False), jax.default_prng_impl(_PRNG):
            steps = state.steps + 1
            keys = jax.vmap(jax.random.fold_in)(state.key, steps)
            cast_actions = actions.astype(jnp.int32 if isinstance(self.action_space, spaces.Discrete) else jnp.float32)
            obs, env, reward, terminated, *_ = jax.vmap(self._env.step_env, (0, 0, 0, None))(
                keys, state.env, cast_actions, self._params
            )
            return GymnaxState(env, obs, state.key, steps), reward, terminated.astype(bool)

    def observe(self, state: GymnaxState) -> jax.Array:
        """See `Dynamics.observe`; choices are one-hot."""
        if self._choices:
            return jax.nn.one_hot(state.obs, self._choices, dtype=jnp.float32)
        return state.obs.astype(self.observation_space.dtype)
