"""`python -m ppo_bench.check [overrides]`: does this environment on this backend keep the contract? Exit 0 or 1."""

from __future__ import annotations

import dataclasses
import sys

from ppo_bench.cli import Parser, exit_code


def main(arguments: list[str]) -> int:
    """Play at random, print a line for each rule; 1 if any is broken."""
    parser = Parser("python -m ppo_bench.check", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="env=..., backend=..., env.id=..., as for a run")
    parser.add_argument("--num-envs", type=int, default=4, help="parallel environments (default 4)")
    parser.add_argument("--num-steps", type=int, default=1200, help="steps in each (default 1200)")
    options = parser.parse_args(arguments)
    if min(options.num_envs, options.num_steps) < 2:
        parser.error("--num-envs and --num-steps must be at least 2")

    from ppo_bench.config import load_config
    from ppo_bench.envs.check import check_contract

    config = load_config(options.overrides)
    config.backend.require()
    task = dataclasses.replace(config.task, num_envs=options.num_envs)
    findings = check_contract(lambda: config.backend.make(task), options.num_steps)
    for finding in findings:
        print(f"{'ok  ' if finding.kept else 'FAIL'}  {finding.rule}: {finding.evidence}")
    broken = sum(not finding.kept for finding in findings)
    verdict = "keeps the contract" if not broken else f"breaks {broken} of {len(findings)} rules"
    print(f"{task.id} on {config.backend.name} {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
