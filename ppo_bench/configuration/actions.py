"""Test for continuous actions."""

from __future__ import annotations

import os

from ppo_bench.envs.base import Backend, Task
from ppo_bench.envs.jax.backend import CONTINUOUS
from ppo_bench.envs.observed import make_env


def acts_by_floats(backend: Backend, task: Task) -> bool:
    """Whether the actions of a task are floats. The test makes one environment; False if that fails.

    Environments of `backend=jax` are known by their ids: making one would initialise JAX, whose number of devices and
    flags are still to be set.
    """
    if backend.name == "jax":
        return task.id in CONTINUOUS
    from gymnasium import spaces

    before = dict(os.environ)
    try:
        backend.require()
        env = make_env(backend, task.alone())
        env.close()
        return isinstance(env.action_space, spaces.Box)
    except Exception:  # the training meets the same error and reports it
        return False
    finally:  # environment variables set by physics libraries must not affect the training
        os.environ.clear()
        os.environ.update(before)
