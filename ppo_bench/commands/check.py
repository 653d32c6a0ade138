"""`python -m ppo_bench.check [overrides]`: does an environment on a backend keep the contract? Exit 0 or 1."""

from __future__ import annotations

import argparse
import sys
import traceback

from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.common.errors import ConfigError, RunError, one_line
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.check import Finding, check_contract
from ppo_bench.envs.make import make_env


def main(arguments: list[str]) -> int:
    """Check an environment; print a line for each rule; 1 if a rule is broken, else 0."""
    parser = Parser("python -m ppo_bench.check", description=__doc__)
    parser.add_overrides("env=..., backend=..., env.id=..., as for a run")
    parser.add_argument("--num-envs", type=int, default=4, help="parallel environments (default 4)")
    parser.add_argument("--num-steps", type=int, help="steps in each (default 1200 to 4800, until episodes have ended)")
    options = parser.parse_intermixed_args(arguments)
    if options.num_envs < 2 or (options.num_steps is not None and options.num_steps < 2):
        parser.error("--num-envs and --num-steps must be at least 2")
    try:
        findings, name = _check(parse_overrides(options), options)
    except ConfigError:
        raise
    except Exception as error:  # whatever the environment's own code raises
        if isinstance(error, RunError) and not error.__cause__:
            raise
        traceback.print_exc()
        said = error if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
        print(f"FAIL  it raises in random play: {one_line(said)}")
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
    config.require_backend()

    def make() -> VectorEnv | GraphEnv:
        return make_env(config.backend, config.task.with_num_envs(options.num_envs))

    return check_contract(make, options.num_steps), f"{config.task.id} on {config.backend.name}"


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
