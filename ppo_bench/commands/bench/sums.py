"""Sums over the devices that share a training: their size in an iteration, and their duration by themselves."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.runs.group import GroupRunner

REPETITIONS = 20


class Sums(NamedTuple):
    """The sums of gradients over devices in one iteration."""

    bytes: int
    """Size of all gradients that one device gives to the sums."""
    seconds: float
    """Duration of as many sums of that size, with nothing else going on."""


def sums_of(config: Config, network: NetworkSpec, group: GroupRunner | None) -> Sums | None:
    """The sums of an iteration of `config`; None for one device. `group` are its processes, where it has several."""
    if config.root.devices == 1:
        return None
    dtype = np.dtype(PRECISIONS[config.root.precision].parameters)
    count = config.ppo.update_epochs * config.ppo.num_minibatches
    size = sum(int(np.prod(parameter.shape)) for parameter in network.parameters)
    seconds = max(group.call("seconds_of_total", size, REPETITIONS)) if group else _in_program(config, size, dtype)
    return Sums(count * size * dtype.itemsize, count * seconds)


def _in_program(config: Config, size: int, dtype: np.dtype) -> float:
    """Seconds of a sum of `size` numbers over the devices of a JAX program."""
    import jax
    import jax.numpy as jnp

    from ppo_bench.envs.base import DEVICES
    from ppo_bench.runners.jax_device import pick_devices
    from ppo_bench.runners.jax_mesh import SAME, Devices

    precision = PRECISIONS[config.root.precision]
    devices = Devices(pick_devices(config.root.device, precision, config.root.devices))
    total = devices.program(lambda x: jax.lax.psum(x, DEVICES), (SAME,), SAME)
    x = devices.put(jnp.ones(size, dtype), SAME)
    jax.block_until_ready(total(x))
    started = time.perf_counter()
    for _ in range(REPETITIONS):
        jax.block_until_ready(total(x))
    return (time.perf_counter() - started) / REPETITIONS
