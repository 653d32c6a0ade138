"""What every run of a sweep is asked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ppo_bench.config import Config
from ppo_bench.video.filmer import Filmer


def require_all(configs: Sequence[Config]) -> None:
    """Raise `ConfigError` if a package is missing, or an environment that cannot be made or, where asked for, drawn.

    Each environment is made once, and none of a JAX program: their names are checked, and a GPU is left to the runs.
    """
    for config in configs:
        config.require()
    made = set()
    for config in configs:
        films = config.root.video.every_episodes > 0
        task = replace(config.task, num_envs=1)
        what = repr((config.backend, task, films))
        if what in made:
            continue
        made.add(what)
        if not config.backend.in_graph:
            config.backend.make(task).close()
        if films:
            Filmer(config).require()
