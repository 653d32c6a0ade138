"""Inference of a policy in JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.mathematics.arrays import Arrays, Tree, restored
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.network import NetworkSpec, Outputs
from ppo_bench.runners.base import Policy
from ppo_bench.runners.declared import policy_arrays
from ppo_bench.runners.jax_device import in_precision, pick_device, without_long_integers
from ppo_bench.tuning.switches import Tuning


def policy(network: NetworkSpec, arrays: Arrays, precision: str, device: str, tuning: Tuning) -> Policy:
    """See `Framework.policy`."""
    arithmetic = PRECISIONS[precision]
    picked = pick_device(device, arithmetic)
    own = restored(policy_arrays(network, arithmetic), arrays)
    with in_precision(arithmetic):
        params = jax.device_put({name.removeprefix("params."): array for name, array in own.items()}, picked)

    forward = _forward(network, precision, tuning)

    def act(obs: np.ndarray, start: np.ndarray, carry: Tree) -> Outputs:
        with in_precision(arithmetic), jax.default_device(picked):  # policies of another precision may act in turn
            started = start if network.carry else None
            outputs: Outputs = jax.device_get(forward(params, without_long_integers(obs), started, carry))
            return outputs

    return act


@functools.lru_cache(maxsize=8)
def _forward(network: NetworkSpec, precision: str, tuning: Tuning) -> Callable[..., Outputs]:
    """Compiled forward function with the parameters as arguments, cached: a game's checkpoints share the program."""
    arithmetic = PRECISIONS[precision]
    dtype = jnp.dtype(arithmetic.parameters)
    ops = JaxOps(dtype, jnp.dtype(arithmetic.layers), tuning)

    @jax.jit
    def forward(params: Arrays, obs: jax.Array, start: jax.Array | None, carry: Tree) -> Outputs:
        return network.step(ops, params, obs, carry, None if start is None else start.astype(dtype))

    return forward
