"""The programs that a command compares: one for each job of its words, which are those of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

    Without framework= there are jobs of every framework; those that cannot run here are left out with the reason.
    Raises `ConfigError` if a framework that was named cannot run a job, or no framework can.
    """
    is_named = any(key_of(word) == "framework" for word in overrides)
    jobs = expand(overrides if is_named else [f"framework={','.join(FRAMEWORKS)}", *overrides])
    shared = set.intersection(*map(set, jobs))
    found: dict[str, Config] = {}
    reasons: dict[tuple[str, ...], list[str]] = {}
    able = set()
    for job in jobs:
        config, others = load(job), tuple(word for word in job if key_of(word) != "framework")
        try:
            require(config)
        except ConfigError as error:
            if is_named:
                raise
            reasons.setdefault(others, []).append(str(error))
            continue
        able.add(others)
        (framework,) = (word.partition("=")[2] for word in job if key_of(word) == "framework")
        found[" ".join((framework, *(word for word in others if word not in shared)))] = config
    for others, why in reasons.items():
        if others not in able:
            raise ConfigError("; ".join(dict.fromkeys(why)))
    for reason in dict.fromkeys(reason for why in reasons.values() for reason in why):
        print_status(f"left out: {reason}")
    return found


def require_same(configs: Mapping[str, Config], values_of: Callable[[Config], Mapping[str, Any]]) -> None:
    """Raise `ConfigError` if programs differ in one of the values that `values_of` returns by key."""
    first, *others = map(values_of, configs.values())
    for other in others:
        for key in first:
            if first[key] != other[key]:
                raise ConfigError(f"{key}: compare with one value after the other")


def require_no_run(config: Config) -> None:
    """Raise `ConfigError` if a key asks for what a comparison of programs does not do."""
    root, leaves_no_run = config.root, "a comparison leaves no run"
    for key, is_given, why in (
        ("checkpoint.load", root.checkpoint.load is not None, "every program begins at the seed's initial weights"),
        (f"num_seeds={root.num_seeds}", root.num_seeds > 1, "compare one seed after the other"),
        ("grid", bool(root.grid), "compare one set of hyperparameters after the other"),
        ("tracker", bool(config.trackers), leaves_no_run),
        ("video.every_episodes", bool(root.video.every_episodes), leaves_no_run),
        ("evaluation.every_iterations", bool(root.evaluation.every_iterations), leaves_no_run),
        ("rerun", root.rerun, leaves_no_run),
    ):
        if is_given:
            raise ConfigError(f"{key} has no meaning here: {why}")
