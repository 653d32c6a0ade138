"""Results of a benchmark: a table and a JSON file."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_bench.commands.bench.phases import Turn
from ppo_bench.commands.bench.worker import Measured
from ppo_bench.common.columns import aligned
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.values import file_name
from ppo_bench.configuration.compose import key_of, of_hydra
from ppo_bench.configuration.config import Config
from ppo_bench.runs.provenance import provenance

PHASES = ("environment", "acting", "learning", "rest")
COLUMNS = {
    "backend": "{backend}",
    "framework": "{framework}",
    "SPS": "{sps:,.0f}",
    "slowest - fastest": "{sps_slowest:,.0f} - {sps_fastest:,.0f}",
    **{phase: f"{{{phase}:,.1f}}" for phase in PHASES},
    "compile s": "{compile_seconds:.1f}",
    "MB": "{megabytes:,.0f}",
    "": "{overrides}",
}
"""Columns of the table, by their titles."""


def report(group: Mapping[str, Config], measured: list[Measured], path: Path) -> None:
    """Print the table of the programs by their names, write the JSON file `path` and print the path."""
    configs = list(group.values())
    rows = [_row(config, name, found) for (name, config), found in zip(group.items(), measured, strict=True)]
    print(f"{configs[0].task.name}: milliseconds of an iteration, medians of {len(measured[0].turns)}")
    _print_table(rows)
    write_json(path, _about(configs) | {"programs": rows})
    print(path)


def bench_file(config: Config, what: str, suffix: str) -> Path:
    """The path `<outputs>/bench/<env>[-<what>]<suffix>`, whose folder is made. Raises `ConfigError` if that fails."""
    folder = Path(config.root.outputs) / "bench"
    make_folder(folder)
    names = (file_name(config.task.name), *([file_name(what)] if what else []))
    return folder / ("-".join(names) + suffix)


def _about(configs: Sequence[Config]) -> dict[str, Any]:
    """What all programs share: environment, device, overrides without paths, hardware and versions."""
    first = configs[0]
    words = [word for word in first.overrides if key_of(word) != "outputs" and not of_hydra([word])]
    shared = [word for word in words if all(word in other.overrides for other in configs)]
    names = {"env": first.task.name, "device": first.root.device}
    return {"schema_version": SCHEMA_VERSION} | names | {"overrides": shared} | provenance()


def _row(config: Config, name: str, measured: Measured) -> dict[str, Any]:
    turns, batch = measured.turns, config.ppo.batch_size
    seconds = {name: statistics.median(getattr(turn, name) for turn in turns) for name in Turn._fields}
    fastest, slowest = (batch / pick(turn.iteration for turn in turns) for pick in (min, max))
    return {
        "framework": config.framework.name,
        "backend": config.backend.name,
        "overrides": name.partition(" ")[2],
        "num_envs": config.ppo.num_envs,
        "num_steps": config.ppo.num_steps,
        "precision": config.root.precision,
        "sps": batch / seconds["iteration"],
        "sps_slowest": slowest,
        "sps_fastest": fastest,
        "seconds": seconds,
        **measured.start._asdict(),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        milliseconds = {phase: 1000 * row["seconds"][phase] for phase in PHASES}
        shown = row | milliseconds | {"megabytes": row["peak_memory_bytes"] / 1e6}
        lines.append([template.format(**shown) for template in COLUMNS.values()])
    print(aligned([list(COLUMNS), *lines], right=range(2, len(COLUMNS) - 1)))
