"""A policy that does not learn, executed by JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.networks import jax as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.ppo import Head
from ppo_bench.precision import PRECISIONS
from ppo_bench.runners.base import Arrays, Policy, fitting
from ppo_bench.runners.jax_learning import pick_device, set_precision


def policy(network: NetworkSpec, arrays: Arrays, precision: str, device: str) -> Policy:
    """See `Framework.policy`."""
    arithmetic = PRECISIONS[precision]
    set_precision(arithmetic)
    picked = pick_device(device, arithmetic)
    dtype, layers = jnp.dtype(arithmetic.parameters), jnp.dtype(arithmetic.layers)
    params = {p.name: fitting(arrays, f"params.{p.name}", p.shape).astype(dtype) for p in network.parameters}
    params = jax.device_put(params, picked)
    forward = jax.jit(functools.partial(networks.apply, network, carry=(), start=None, layers=layers))

    def act(obs: np.ndarray) -> tuple[Head, np.ndarray]:
        with jax.default_device(picked):
            head, values, _ = forward(params, obs)
        return tuple(np.asarray(part) for part in head), np.asarray(values)

    return act
