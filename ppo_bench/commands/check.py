"""`python -m ppo_bench.check [overrides]`: does an environment on a backend keep the contract? Exit 0 or 1."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import traceback

from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.common.errors import ConfigError, RunError, one_line
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.check import Finding, check_contract
from ppo_bench.envs.distribution import compare_distributions
from ppo_bench.envs.observation_selection import make_env

NUM_ENVS_OF_DISTRIBUTION = 50


def main(arguments: list[str]) -> int:
    """Check an environment; print a line for each rule; 1 if a rule is broken, else 0."""
    parser = Parser("python -m ppo_bench.check", description=__doc__)
    parser.add_overrides("env=..., backend=..., env.id=..., as for a run")
    parser.add_argument("--distribution", action="store_true", help="also compare random play with gymnasium's")
    parser.add_argument("--num-envs", type=int, default=4, help="parallel environments (default 4)")
    parser.add_argument("--num-steps", type=int, help="steps in each (default 1200 to 4800, until episodes have ended)")
    parser.add_argument("--num-episodes", type=int, default=1000, help="episodes for --distribution (default 1000)")
    options = parser.parse_intermixed_args(arguments)
    if options.num_envs < 2 or (options.num_steps is not None and options.num_steps < 2):
        parser.error("--num-envs and --num-steps must be at least 2")
    if options.num_episodes < 100:
        parser.error("--num-episodes must be at least 100")
    try:
        findings, name = _check(parse_overrides(options), options)
    except (ConfigError, RunError):
        raise
    except Exception as error:  # whatever the environment's own code raises
        traceback.print_exc()
        print(f"FAIL  it raises in random play: {type(error).__name__}: {one_line(error)}")
        return 1
    for finding in findings:
        print(f"{'ok  ' if finding.holds else 'FAIL'}  {finding.rule}: {finding.evidence}")
    broken = sum(not finding.holds for finding in findings)
    verdict = "keeps the contract" if not broken else f"breaks {broken} of {len(findings)} rules"
    print(f"{name} {verdict}")
    return 1 if broken else 0


def _check(overrides: list[str], options: argparse.Namespace) -> tuple[list[Finding], str]:
    """The findings for the environment that `overrides` choose, and its id and backend in words."""
    config = load_config(overrides)
    config.backend.require()

    def make(num_envs: int) -> VectorEnv | GraphEnv:
        return make_env(config.backend, config.task.with_num_envs(num_envs))

    reference = _gymnasium_config(config, overrides) if options.distribution else None
    findings = check_contract(functools.partial(make, options.num_envs), options.num_steps)
    if reference:
        task = dataclasses.replace(reference.task, num_envs=NUM_ENVS_OF_DISTRIBUTION)
        findings += compare_distributions(
            functools.partial(make, task.num_envs), lambda: make_env(reference.backend, task), options.num_episodes
        )
    return findings, f"{config.task.id} on {config.backend.name}"


def _gymnasium_config(config: Config, overrides: list[str]) -> Config:
    """The configuration of the same environment on gymnasium. Raises `ConfigError` if gymnasium does not have it."""
    env = config.root.env
    if env.id or "gymnasium" not in env.ids:
        raise ConfigError(
            f"--distribution compares with gymnasium, of which env={env.id or env.name} names no environment"
        )
    return load_config([*(word for word in overrides if not word.startswith("backend")), "backend=gymnasium"])


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
