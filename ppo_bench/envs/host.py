"""Conversion of any environments to a `VectorEnv`. JAX is imported only if the environments need it."""

from __future__ import annotations

from ppo_bench.envs.base import GraphEnv, VectorEnv


def on_host(env: VectorEnv | GraphEnv) -> VectorEnv:
    """`env` itself if it is a `VectorEnv`, else a `VectorEnv` that steps the `GraphEnv` `env`."""
    if not isinstance(env, GraphEnv):
        return env
    from ppo_bench.envs.jax.host import HostView

    return HostView(env)
