"""`python -m ppo_bench.bench [overrides]`: where the time of an iteration goes.

It measures every framework on every backend that offers the environment. Each has a process of its own, and the
processes take turns, so that other load on the machine affects all of them alike. Lists choose what is measured:
env=breakout framework=torch_eager,jax_xla ppo.num_envs=4,64,1024. trace=true records a profiler's trace of an
iteration instead, and counts launches and copies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ppo_bench.commands.bench.launches import launches
from ppo_bench.commands.bench.phases import phases
from ppo_bench.commands.bench.programs import labels, load, runnable, schema
from ppo_bench.commands.bench.report import bench_file, report
from ppo_bench.commands.bench.training import trace
from ppo_bench.commands.bench.worker import Program, in_turn
from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.configuration.config import Config
from ppo_bench.sweeps.expand import expand


def main(arguments: list[str]) -> int:
    """Measure; print a table and write a JSON file for each environment."""
    parser = Parser("python -m ppo_bench.bench", description=__doc__)
    parser.add_overrides("as for a sweep; and rounds=5")
    overrides = parse_overrides(parser.parse_intermixed_args(arguments))
    asked = schema(load(expand(overrides)[0]))
    groups: dict[str, list[tuple[list[str], Config]]] = {}
    for job, config in runnable(overrides):
        groups.setdefault(config.task.name, []).append((job, config))
    for programs in groups.values():
        if asked.trace:
            _trace(programs)
        else:
            _phases(programs)
    return 0


def _phases(programs: Sequence[tuple[list[str], Config]]) -> None:
    configs = [config for _, config in programs]
    root, path = schema(configs[0]), bench_file(configs[0], "", ".json")
    measured = in_turn(phases, configs, root.rounds, root.iterations)
    report(configs, labels([job for job, _ in programs]), measured, path)


def _trace(programs: Sequence[tuple[list[str], Config]]) -> None:
    names = labels([job for job, _ in programs])
    for (_, config), name in zip(programs, names, strict=True):
        what = "-".join(filter(None, (config.backend.name, config.framework.name, name)))
        path = bench_file(config, what, ".trace.json.gz")
        with Program(trace, config, path.absolute()) as program:
            program.turn()
        counted = launches(path).in_words(config.ppo.num_steps * config.framework.iterations_per_call)
        print(f"{config.framework.name} on {config.backend.name}: {counted}")
        print(path)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
