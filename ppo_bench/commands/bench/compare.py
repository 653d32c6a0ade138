"""`ppo-bench bench compare A.json B.json`: the speeds of two machines side by side, from what a bench wrote on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ppo_bench.common.cli import Parser
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, read_json

NAMES = ("A", "B")


class Speed(NamedTuple):
    """Environment steps per second of one program."""

    sps: float
    low: float
    """Speed of the slowest iteration."""
    high: float


Bench = dict[tuple[str, str, str], Speed]
"""Speeds by framework, backend and workload."""


def compare(arguments: list[str]) -> int:
    """Print both machines, and a line for each program that either measured."""
    parser = Parser("python -m ppo_bench.bench compare", description=__doc__)
    parser.add_argument("files", metavar="FILE.json", nargs=2, help="outputs/bench/<env>-<workload>.json of a machine")
    options = parser.parse_args(arguments)
    paths = [Path(file) for file in options.files]
    told = [_read(path) for path in paths]
    for key in ("env", "workload"):
        if told[0][key] != told[1][key]:
            raise ConfigError(f"{paths[0]} is of {key}={told[0][key]} and {paths[1]} of {told[1][key]}: choose alike")
    try:
        benches = [dict(_speeds(one)) for one in told]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{paths[0]} or {paths[1]} lacks what a bench writes ({error}): measure it anew") from error
    if not set(benches[0]) & set(benches[1]):
        raise ConfigError(f"{paths[0]} and {paths[1]} have no program in common: choose two of the same bench")
    print(f"{told[0]['env']}, {told[0]['workload']}: environment steps per second")
    for name, path, one in zip(NAMES, paths, told, strict=True):
        print(f"{name}: {_machine(one)} ({path})")
    print("\n".join(_table(*benches)))
    return 0


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ConfigError(f"there is no {path}: python -m ppo_bench.bench writes it, and prints its path")
    told = read_json(path, "measure it anew by python -m ppo_bench.bench")
    if told.get("schema_version") != SCHEMA_VERSION or "programs" not in told:
        raise ConfigError(f"{path} is no bench: choose a file of python -m ppo_bench.bench")
    return told


def _speeds(told: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], Speed]]:
    for row in told["programs"]:
        rounded = "" if row["precision"] == "float32" else row["precision"]
        work = " ".join(filter(None, (f"{row['num_envs']} x {row['num_steps']}", rounded, row["overrides"])))
        speed = Speed(row["sps"], row["sps_slowest"], row["sps_fastest"])
        yield (row["framework"], row["backend"], work), speed


def _machine(told: dict[str, Any]) -> str:
    hardware, versions = told["hardware"], told["versions"]
    cores = f"{hardware['cores_available']} of {hardware['cores']} cores"
    frameworks = [f"{name} {versions[name]}" for name in ("torch", "jax") if versions.get(name)]
    gpu = None if told.get("device") == "cpu" else hardware["gpu"]
    asked = " ".join([*(["device=cpu"] if told.get("device") == "cpu" else []), *told.get("overrides", [])])
    return ", ".join(filter(None, (gpu, hardware["cpu"], cores, *frameworks, asked)))


def _table(a: Bench, b: Bench) -> Iterator[str]:
    """A line for each program, in the order of A and then of B; a ratio is that of B to A."""
    rows, overlaps = [["framework", "backend", "envs x steps", "A", "B", "B / A", ""]], False
    for key in dict.fromkeys([*a, *b]):
        speeds = [f"{bench[key].sps:,.0f}" if key in bench else "-" for bench in (a, b)]
        ratio = f"{b[key].sps / a[key].sps:.2f}" if key in a and key in b else ""
        overlap = bool(ratio) and a[key].low < b[key].high and b[key].low < a[key].high
        overlaps |= overlap
        rows.append([*key, *speeds, ratio, "~" if overlap else ""])
    yield aligned(rows, right=(3, 4, 5))
    if overlaps:
        yield "~: the slowest and fastest iterations of the two overlap"
