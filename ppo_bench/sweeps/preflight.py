"""Checks of a sweep's environments before its first run starts."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ppo_bench.configuration.config import Config
from ppo_bench.envs.observed import make_env


def check_environments(configs: Iterable[Config]) -> None:
    """Raise `ConfigError` if an environment cannot be made.

    Environments inside a JAX program are checked by their runs, as GPUs are.
    """
    seen, before = set(), dict(os.environ)
    try:
        for config in configs:
            task = config.task.alone()
            what = repr((config.backend, task))
            if what in seen:
                continue
            seen.add(what)
            if not config.backend.in_graph:
                env = make_env(config.backend, task)
                env.close()
                config.problem(env)
    finally:  # physics and graphics libraries may have set environment variables, which the runs must not inherit
        os.environ.clear()
        os.environ.update(before)
