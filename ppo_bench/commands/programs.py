"""The programs that a command compares: one for each job of its words, which are those of a sweep."""

from __future__ import annotations

from collections.abc import Callable

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.compose import key_of
from ppo_bench.configuration.config import Config
from ppo_bench.sweeps.expand import expand


def programs(
    load: Callable[[list[str]], Config], overrides: list[str], require: Callable[[Config], None] = Config.require
) -> dict[str, Config]:
    """The configuration of each job, by its framework and the words that not all jobs share.

    Without framework= there are jobs of every framework; what cannot run here is left out with its reason. Raises
    `ConfigError` if a framework that was named cannot run, or none can.
    """
    is_named = any(key_of(word) == "framework" for word in overrides)
    jobs = expand(overrides if is_named else [f"framework={','.join(FRAMEWORKS)}", *overrides])
    shared = set.intersection(*map(set, jobs))
    found: dict[str, Config] = {}
    reasons = []
    for job in jobs:
        config = load(job)
        try:
            require(config)
        except ConfigError as error:
            if is_named:
                raise
            reasons.append(str(error))
            continue
        (framework,) = (word.partition("=")[2] for word in job if key_of(word) == "framework")
        differing = (word for word in job if word not in shared and key_of(word) != "framework")
        found[" ".join((framework, *differing))] = config
    if not found:
        raise ConfigError("; ".join(dict.fromkeys(reasons)))
    for reason in dict.fromkeys(reasons):
        print_status(f"left out: {reason}")
    return found
