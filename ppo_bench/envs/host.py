"""Any environments as ordinary ones on the host. Light on purpose: JAX is imported only for those that need it."""

from __future__ import annotations

from ppo_bench.envs.base import GraphEnv, VectorEnv


def on_host(env: VectorEnv | GraphEnv) -> VectorEnv:
    """`env` itself, or a view of it if it is part of a JAX program."""
    if not isinstance(env, GraphEnv):
        return env
    from ppo_bench.envs.jax.host import HostView

    return HostView(env)
