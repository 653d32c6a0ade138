"""Scaling: speed and memory of a training against the number of environments, steps, hidden units and seeds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_bench.commands.bench.figures import COLOURS, save
from ppo_bench.commands.bench.laps import Laps
from ppo_bench.commands.bench.programs import labels, load, network_of, schema
from ppo_bench.commands.bench.report import about, bench_file
from ppo_bench.commands.bench.worker import Measured, Program
from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.files import write_json
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config

AXES = {
    "num_envs": "ppo.num_envs={}",
    "num_steps": "ppo.num_steps={}",
    "hidden_size": "network.hidden_sizes=[{0},{0}]",
    "num_seeds": "num_seeds={}",
    "devices": "devices={}",
}
"""The override that sets each axis."""
TITLES = {
    "num_envs": "environments",
    "num_steps": "steps of a rollout",
    "hidden_size": "units of a hidden layer",
    "num_seeds": "seeds in one program",
    "devices": "devices",
}

LEAST_SECONDS, MOST_SECONDS = 2.0, 20.0
"""Minimum and maximum duration of the measurement of one point, in seconds."""
STYLES = (("o", "-"), ("s", "--"), ("D", ":"), ("^", "-."))
"""Marker and line style of each backend; colours stand for frameworks."""


def scaling(programs: Sequence[tuple[list[str], Config]]) -> None:
    """Measure every point, print the results and draw a figure.

    Points are measured one after the other, each in a process of its own, so that they do not share memory. The JSON
    file is updated after each point; the results of a point that fails are null.
    """
    told = labels([job for job, _ in programs])
    todo = [
        (label, *point) for label, (job, config) in zip(told, programs, strict=True) for point in points(job, config)
    ]
    first, configs = programs[0][1], [config for _, config in programs]
    path = bench_file(first, "scaling", ".json")
    rows: list[dict[str, Any]] = []
    for label, axis, value, config in todo:
        rows.append(_row(axis, value, config) | {"overrides": label})
        write_json(path, about(configs) | {"points": rows})
        say(f"{len(rows)} of {len(todo)}: {axis}={value} {config.framework.name} on {config.backend.name}")
    print_scales(rows)
    if any(row["sps"] for row in rows):
        draw_scales(first.task.name, rows, path)
    print(path)


def points(job: list[str], config: Config) -> list[tuple[str, int, Config]]:
    """The points to measure for a program: axis, value and configuration. Axes that do not apply to it are left out."""
    found = []
    for axis, values in schema(config).scales.items():
        if axis not in AXES:
            raise ConfigError(f"scales.{axis}: choose among {', '.join(AXES)}")
        if axis == "num_seeds" and not (config.framework.takes_graph_envs and config.backend.vmappable):
            continue
        if axis == "hidden_size" and not _has_hidden_layers(config):
            continue
        if axis == "devices":
            found += _of_devices(job, config, values) if values else []
            continue
        found += [(axis, value, load([*job, AXES[axis].format(value)])) for value in values]
    for _, _, one in found:
        one.require()
    return found


def _of_devices(job: list[str], config: Config, values: Sequence[int]) -> list[tuple[str, int, Config]]:
    """The points of one training on several numbers of devices; none if machine or environments do not allow them."""
    try:
        there = [(f"devices={value}", f"ppo.shards={max(values)}") for value in values]
        of_values = [load([*job, *words]) for words in there]
        for one in of_values:
            one.require()
    except ConfigError as error:
        say(f"left out: scales.devices of {config.framework.name} on {config.backend.name}: {error}")
        return []
    return [("devices", value, one) for value, one in zip(values, of_values, strict=True)]


def _has_hidden_layers(config: Config) -> bool:
    return hasattr(config.network, "hidden_sizes") and not network_of(config).convolutions


def _row(axis: str, value: int, config: Config) -> dict[str, Any]:
    row = {
        "axis": axis,
        "value": value,
        "framework": config.framework.name,
        "backend": config.backend.name,
        "sps": None,
        "iteration_seconds": [],
    }
    try:
        measured = _measure(config)
    except (ConfigError, Failed) as error:  # for example, a game needs more environments, or memory is too small
        say(f"warning: {axis}={value} {config.framework.name} on {config.backend.name}: {error}")
        return row
    sps = config.ppo.batch_size * config.root.num_seeds / statistics.median(measured.turns)
    return row | {"sps": sps, "iteration_seconds": measured.turns} | measured.start._asdict()


def _measure(config: Config) -> Measured:
    if config.framework.compiles:  # a first process fills the compilation cache, since compiling takes memory too
        Program(Laps, config).stop()
    program = Program(Laps, config)
    root = schema(config)
    try:
        started, turns = time.perf_counter(), [program.turn()]
        while (seconds := time.perf_counter() - started) < MOST_SECONDS:
            if seconds >= LEAST_SECONDS and len(turns) > root.rounds * root.iterations:
                break
            turns.append(program.turn())
        return Measured(program.start, turns[1:] or turns)  # the first one may find an idle processor at low clock rate
    finally:
        program.stop()


def print_scales(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each point."""
    print(f"{'axis':<13}{'value':>6}  {'backend':<12}{'framework':<15}{'SPS':>12}{'MB':>8}{'GPU MB':>8}")
    for row in rows:
        line = f"{row['axis']:<13}{row['value']:>6}  {row['backend']:<12}{row['framework']:<15}"
        if row["sps"] is None:
            print(f"{line}{'failed':>12}")
            continue
        line += f"{row['sps']:>12,.0f}{row['peak_memory_bytes'] / 1e6:>8,.0f}"
        gpu = row["gpu_memory_bytes"]
        line += "" if gpu is None else f"{gpu / 1e6:>8,.0f}"
        if row.get("shared_bytes"):
            share = row["shared_seconds"] / statistics.median(row["iteration_seconds"])
            line += f"  {row['shared_bytes'] / 1e6:,.1f} MB summed an iteration, {share:.0%} of its time"
        print(f"{line}  {row['overrides']}".rstrip())


def draw_scales(title: str, rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a figure beside the JSON file at `path`: a column for each axis, with speed above memory."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["sps"] is not None]
    axes = [axis for axis in AXES if any(row["axis"] == axis for row in rows)]
    rows = [row | {"backend": f"{row['backend']} {row['overrides']}".strip()} for row in rows]
    programs = list(dict.fromkeys((row["framework"], row["backend"]) for row in rows))
    frameworks, backends = (list(dict.fromkeys(names)) for names in zip(*programs, strict=True))
    figure = Figure(figsize=(3.2 * len(axes) + 0.8, 6.4), layout="constrained")
    grid = figure.subplots(2, len(axes), squeeze=False, sharey="row", sharex="col")
    for column, axis in enumerate(axes):
        for framework, backend in programs:
            own = [row for row in rows if (row["axis"], row["framework"], row["backend"]) == (axis, framework, backend)]
            colour = COLOURS[frameworks.index(framework) % len(COLOURS)]
            marker, line = STYLES[backends.index(backend) % len(STYLES)]
            style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}
            values = [row["value"] for row in own]
            grid[0, column].plot(values, [row["sps"] for row in own], label=f"{framework}, {backend}", **style)
            grid[1, column].plot(values, [row["peak_memory_bytes"] / 1e6 for row in own], **style)
        for ax in grid[:, column]:
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
        grid[1, column].set_xlabel(TITLES[axis])
    grid[0, 0].set_ylabel("environment steps per second")
    grid[1, 0].set_ylabel("peak memory, MB")
    figure.suptitle(f"{title}: cost as work grows")
    handles = {label: handle for ax in grid[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, path)
