"""Estimate of the memory that a training needs, before any array is allocated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.launched import launched
from ppo_bench.configuration.config import Config
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.parts import Part
from ppo_bench.runners.declared import declared_arrays
from ppo_bench.tuning.machine import has_nvidia_gpu, memory_bytes

FROM_TRANSITIONS = 100_000
"""Minimum number of transitions per iteration for the estimate, which has to make an environment."""


def require_memory(config: Config) -> None:
    """Raise `ConfigError` if the declared arrays of a training are larger than this machine's memory.

    Memory of minibatches and of the environments themselves comes on top. Machines with an NVIDIA GPU are not checked,
    because the arrays may be in its memory, nor is one of several JAX programs that share a training.
    """
    ppo, runs = config.ppo, len(config.of_each_run())
    if ppo.num_envs * ppo.num_steps * runs < FROM_TRANSITIONS or has_nvidia_gpu():
        return
    if config.backend.in_graph and config.processes > 1:  # its environments use JAX, before the processes are joined
        return
    env = make_env(config.backend, config.task.alone())
    try:
        told = launched()
        arrays = declared_arrays(replace(config.problem(env), part=Part(0, told.nodes if told else 1)))
    finally:
        env.close()
    needed = runs * sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays)
    there = memory_bytes()
    if needed > there:
        many = f", {runs} runs at once" if runs > 1 else ""
        raise ConfigError(
            f"ppo.num_envs={ppo.num_envs}, ppo.num_steps={ppo.num_steps}{many}: what a rollout stores takes "
            f"{needed / 2**30:,.0f} GiB, and this machine has {there / 2**30:,.0f}; take fewer"
        )
