"""What the environments of a sweep are asked before its first run starts."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ppo_bench.configuration.config import Config
from ppo_bench.envs.observed import make_env
from ppo_bench.runs.video.filmer import Filmer


def check_environments(configs: Iterable[Config]) -> None:
    """Raise `ConfigError` for one that gymnasium or EnvPool does not have, or that cannot be drawn where that is asked.

    Those of a JAX program are left to the runs, as a GPU is.
    """
    seen, before = set(), dict(os.environ)
    try:
        for config in configs:
            films = config.root.video.every_episodes > 0
            task = config.task.alone()
            what = repr((config.backend, task, films))
            if what in seen:
                continue
            seen.add(what)
            if not config.backend.in_graph:
                make_env(config.backend, task).close()
            if films:
                Filmer(config).require()
    finally:  # what libraries of physics and graphics were told is no business of the runs
        os.environ.clear()
        os.environ.update(before)
