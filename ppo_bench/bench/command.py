"""`python -m ppo_bench.bench [overrides]`: where the time of an iteration goes, against what the machine could do.

Every framework, on every backend that offers the environment, has a process of its own; one at a time has its turn, so
that what else the machine does reaches all of them alike. Lists choose: env=breakout framework=torch_eager,jax_xla
workload=canonical,throughput. ablation=true asks what each optimisation brings, scaling=true what more environments,
steps, units and seeds cost, trace=true for a profiler's record of an iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ppo_bench.bench.ablation import LADDERS, Step, circumstances, draw_ladders, maker, print_ladder, shares, steps
from ppo_bench.bench.laps import Laps
from ppo_bench.bench.limits import Arithmetic, arithmetic
from ppo_bench.bench.phases import Phases
from ppo_bench.bench.programs import load, runnable, schema
from ppo_bench.bench.report import Measured, about, bench_file, report
from ppo_bench.bench.scaling import AXES, draw_scales, print_scales
from ppo_bench.bench.trace import Traced
from ppo_bench.bench.worker import Program
from ppo_bench.cli import Parser
from ppo_bench.compose import offered
from ppo_bench.config import Config
from ppo_bench.errors import ConfigError, require
from ppo_bench.progress import say
from ppo_bench.results import write_json
from ppo_bench.sweep import expand


def main(arguments: list[str]) -> int:
    """Measure, print a table, write JSON and a picture for each environment and workload."""
    parser = Parser("python -m ppo_bench.bench", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for a sweep; and workload=canonical,throughput rounds=5")
    overrides = parser.parse_args(arguments).overrides
    require("torch", "torch", "the limits of the machine")
    asked = schema(load(expand(overrides)[0]))
    if asked.ablation:
        _ablation(overrides)
        return 0
    groups: dict[tuple[str, str], list[tuple[list[str], Config]]] = {}
    for job, config in runnable(overrides):
        groups.setdefault((config.task.name, schema(config).workload), []).append((job, config))
    for programs in groups.values():
        configs = [config for _, config in programs]
        if asked.trace:
            _trace(configs)
        elif asked.scaling:
            _scaling(programs)
        else:
            report(configs, _measure([(Phases, config) for config in configs]), _arithmetics(configs))
    return 0


def _measure(programs: Sequence[tuple[Callable[[Config], Any], Config]]) -> list[Measured]:
    """Every program's turns, taken in alternation; `rounds` times `iterations` of each."""
    root = schema(programs[0][1])
    running: list[Program] = []
    turns: list[list[Any]] = [[] for _ in programs]
    try:
        for make, config in programs:
            running.append(Program(make, config))
            say(f"ready: {config.framework.name} on {config.backend.name} ({len(running)} of {len(programs)})")
        for round_ in range(root.rounds):
            for program, taken in zip(running, turns, strict=True):
                taken += [program.turn() for _ in range(root.iterations)]
            say(f"round {round_ + 1} of {root.rounds}")
        return [Measured(program.start, taken) for program, taken in zip(running, turns, strict=True)]
    finally:
        for program in running:
            program.stop()


def _arithmetics(configs: list[Config]) -> list[Arithmetic]:
    """Of each program; those of the same sizes share a measurement."""
    known: dict[int, Arithmetic] = {}
    for config in configs:
        if config.ppo.num_envs not in known:
            known[config.ppo.num_envs] = arithmetic(config)
    return [known[config.ppo.num_envs] for config in configs]


def _trace(configs: Sequence[Config]) -> None:
    for config in configs:
        path = bench_file(config, f"{config.backend.name}-{config.framework.name}", ".trace.json.gz")
        program = Program(functools.partial(Traced, path), config)
        try:
            program.turn()
        finally:
            program.stop()
        print(path)


def _scaling(programs: Sequence[tuple[list[str], Config]]) -> None:
    """Each point in a process of its own, one after the other: what they use must not add up."""
    points = []
    for job, first in programs:
        for axis, values in schema(first).scales.items():
            if axis not in AXES:
                raise ConfigError(f"scales.{axis}: choose among {', '.join(AXES)}")
            if axis == "num_seeds" and not (first.framework.takes_graph_envs and first.backend.vmappable):
                continue
            if axis == "hidden_size" and not hasattr(first.network, "hidden_sizes"):
                continue
            for value in values:
                config = load([*job, AXES[axis].format(value), "total_timesteps=2_000_000_000"])
                points.append((axis, value, config))
    rows = []
    for axis, value, config in points:
        (measured,) = _measure_quietly(config)
        seconds = float(np.median(measured.turns))
        start = measured.start
        rows.append(
            {
                "axis": axis,
                "value": value,
                "framework": config.framework.name,
                "backend": config.backend.name,
                "sps": config.ppo.batch_size * config.root.num_seeds / seconds,
                "iteration_seconds": measured.turns,
                "peak_memory_bytes": start.peak_memory_bytes,
                "gpu_memory_bytes": start.gpu_memory_bytes,
                "compile_seconds": start.compile_seconds,
            }
        )
        say(f"{len(rows)} of {len(points)}: {axis}={value} {config.framework.name} on {config.backend.name}")
    first = programs[0][1]
    print_scales(rows)
    path = bench_file(first, "scaling", ".json")
    draw_scales(first.task.name, rows, path)
    write_json(path, about(first) | {"points": rows})
    print(path)


def _measure_quietly(config: Config) -> list[Measured]:
    program: Program[float] = Program(Laps, config)
    try:
        turns = [program.turn() for _ in range(schema(config).iterations)]
        return [Measured(program.start, turns)]
    finally:
        program.stop()


def _ablation(overrides: list[str]) -> None:
    for job in expand(overrides):
        config = load(job)
        root, framework = schema(config), [word for word in job if word.startswith("framework=")]
        if config.backend.in_graph:
            raise ConfigError(
                f"ablation=true backend={config.backend.name}: a ladder begins with environments on the host; "
                "use backend=gymnasium or backend=envpool"
            )
        graph = [name for env, name, _ in offered() if env == root.env.name and name in ("jax", "envpool_xla")]
        ladders = {
            name: _climb(job, steps(ladder, *_circumstances(config, max(graph, default=None))))
            for name, ladder in LADDERS.items()
            if not framework or framework[0].startswith(f"framework={name.lower().removeprefix('py')}")
        }
        title = f"{config.task.name}, {root.workload}"
        for name, rows in ladders.items():
            print_ladder(f"{title}, {name}", rows)
        path = bench_file(config, "ablation", ".json")
        draw_ladders(title, ladders, path)
        write_json(path, about(config) | {"ladders": ladders})
        print(path)


def _circumstances(config: Config, graph_backend: str | None) -> tuple[set[str], str | None]:
    import torch

    env = config.backend.make(config.task)
    network = config.network.build(env.observation_space, env.action_space)
    env.close()
    on_gpu = torch.cuda.is_available() and config.root.device != "cpu"
    return circumstances(network, on_gpu, graph_backend), graph_backend


def _climb(job: list[str], climbed: Sequence[Step]) -> list[dict[str, Any]]:
    """Every step measured in alternation with the others."""
    kept = [word for word in job if not word.startswith("framework=")]
    lowest = load([*kept, *climbed[0].words])
    sizes = [f"ppo.num_envs={lowest.ppo.num_envs}", "checkpoint.every_iterations=10"]
    configs = [load([*kept, *sizes, *step.words]) for step in climbed]
    for config in configs:
        config.require()
    measured = _measure([(maker(step), config) for step, config in zip(climbed, configs, strict=True)])
    root = schema(lowest)
    seconds = np.array([np.reshape(found.turns, (root.rounds, root.iterations)) for found in measured])
    rows = shares(np.median(seconds, 2))
    return [
        {
            "title": step.title,
            "words": step.words,
            "without": list(step.handicaps),
            "sps": config.ppo.batch_size / float(np.median(found.turns)),
            "iteration_seconds": found.turns,
            **row,
            **found.start._asdict(),
        }
        for step, config, found, row in zip(climbed, configs, measured, rows, strict=True)
    ]
