"""`python -m ppo_bench.bench [overrides]`: where the time of an iteration goes.

It measures every framework. Each has a process of its own, and the processes take turns, so that other load on the
machine affects all of them alike. Lists choose what is measured, as in a sweep: env=breakout
framework=torch_eager,jax_xla backend=gymnasium,envpool ppo.num_envs=4,64,1024. trace=true records a profiler's trace
of an iteration instead, and counts launches and copies.
"""

from __future__ import annotations

import sys

from ppo_bench.commands.bench.config import load, schema
from ppo_bench.commands.bench.launches import launches
from ppo_bench.commands.bench.phases import phases
from ppo_bench.commands.bench.report import bench_file, report
from ppo_bench.commands.bench.training import trace
from ppo_bench.commands.bench.worker import Program, in_turn
from ppo_bench.commands.programs import programs
from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.configuration.config import Config


def main(arguments: list[str]) -> int:
    """Measure; print a table and write a JSON file for each environment."""
    parser = Parser("python -m ppo_bench.bench", description=__doc__)
    parser.add_overrides("as for a sweep; and rounds=5")
    overrides = parse_overrides(parser.parse_intermixed_args(arguments))
    groups: dict[str, dict[str, Config]] = {}
    for name, config in programs(load, overrides).items():
        groups.setdefault(config.task.name, {})[name] = config
    for group in groups.values():
        (_trace if any(schema(config).trace for config in group.values()) else _phases)(group)
    return 0


def _phases(group: dict[str, Config]) -> None:
    first, *_ = configs = list(group.values())
    root, path = schema(first), bench_file(first, "", ".json")
    report(group, in_turn(phases, configs, root.rounds, root.iterations), path)


def _trace(group: dict[str, Config]) -> None:
    for name, config in group.items():
        path = bench_file(config, f"{config.backend.name}-{name}", ".trace.json.gz")
        with Program(trace, config, path.absolute()) as program:
            program.turn()
        counted = launches(path).in_words(config.ppo.num_steps)
        print(f"{config.framework.name} on {config.backend.name}: {counted}")
        print(path)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
