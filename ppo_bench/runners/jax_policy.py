"""Inference of a policy in JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.mathematics.arrays import Arrays, Tree, load_arrays
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.network import NetworkOutputs, NetworkSpec
from ppo_bench.runners.array_specs import policy_array_specs
from ppo_bench.runners.base import Policy
from ppo_bench.runners.jax_device import in_precision, pick_device, without_long_integers
from ppo_bench.tuning.switches import Tuning


def policy(network: NetworkSpec, arrays: Arrays, precision: str, device: str, tuning: Tuning) -> Policy:
    """See `Torch.policy` in ppo_bench/runners/frameworks.py."""
    arithmetic = PRECISIONS[precision]
    picked = pick_device(device, arithmetic)
    own = load_arrays(policy_array_specs(network, arithmetic), arrays)
    with in_precision(arithmetic):
        params = jax.device_put({name.removeprefix("params."): array for name, array in own.items()}, picked)

    forward = _forward(network, precision, tuning)

    def act(obs: np.ndarray, episode_start: np.ndarray, carry: Tree) -> NetworkOutputs:
        with in_precision(arithmetic), jax.default_device(picked):  # policies of another precision may act in turn
            started = episode_start if network.carry else None
            outputs: NetworkOutputs = jax.device_get(forward(params, without_long_integers(obs), started, carry))
            return outputs

    return act


@functools.lru_cache(maxsize=8)
def _forward(network: NetworkSpec, precision: str, tuning: Tuning) -> Callable[..., NetworkOutputs]:
    """Compiled forward function with the parameters as arguments, cached: a game's checkpoints share the program."""
    arithmetic = PRECISIONS[precision]
    dtype = jnp.dtype(arithmetic.parameters)
    ops = JaxOps(dtype, jnp.dtype(arithmetic.layers), tuning)

    @jax.jit
    def forward(params: Arrays, obs: jax.Array, episode_start: jax.Array | None, carry: Tree) -> NetworkOutputs:
        return network.step(ops, params, obs, carry, None if episode_start is None else episode_start.astype(dtype))

    return forward
