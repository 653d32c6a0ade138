"""Hyperparameters that fit the actions and observations of an environment that no file knows."""

from __future__ import annotations

import os

from ppo_bench.envs.base import Backend, Task
from ppo_bench.envs.jax.backend import CONTINUOUS
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.normalize import are_bytes
from ppo_bench.networks.combined import images_in

CONTINUOUS_PPO = "ppo=continuous"


def fitting(backend: Backend, task: Task) -> tuple[str, ...]:
    """The overrides that fit a task whose actions are floats; none for others.

    Its observations are not normalised if they are bytes, which the network scales, or have images among them. The test
    makes one environment; if that fails, none fit.

    Environments of `backend=jax` are known by their ids: making one would initialise JAX, whose number of devices and
    flags are still to be set.
    """
    if backend.name == "jax":
        return (CONTINUOUS_PPO,) if task.id in CONTINUOUS else ()
    from gymnasium import spaces

    before = dict(os.environ)
    try:
        backend.require()
        env = make_env(backend, task.alone())
        env.close()
        if not isinstance(env.action_space, spaces.Box):
            return ()
        seen = env.observation_space
        pictured = are_bytes(seen) or images_in(seen)
        return (CONTINUOUS_PPO, *(["ppo.norm_obs=false"] if pictured else []))
    except Exception:  # the training meets the same error and reports it
        return ()
    finally:  # environment variables set by physics libraries must not affect the training
        os.environ.clear()
        os.environ.update(before)
