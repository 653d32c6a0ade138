"""The page of machines: speeds that `ppo-bench bench` measured on each machine, from docs/machines/*.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).resolve().parents[1] / "machines"
HEAD = """# Machines

Environment steps per second, as `ppo-bench bench env=...` measured them: the median, and the slowest and fastest
iteration.
To add a machine, put the JSON file that the command prints into `docs/machines/`.
"""


def machines_page() -> str:
    """The page in Markdown: a section for each JSON file, with a row for each measured program."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(MACHINES.glob("*.json"))]
    return "\n".join([HEAD, *(_section(bench) for bench in files if "programs" in bench)])


def _section(bench: dict[str, Any]) -> str:
    hardware, versions = bench["hardware"], bench["versions"]
    machine = (bench.get("device") != "cpu" and hardware["gpu"]) or hardware["cpu"]
    packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "jax", "envpool") if versions.get(name))
    rows = [
        f"| `{row['framework']}` | {row['backend']} | {row['num_envs']} x {row['num_steps']} | {row['sps']:,.0f} | "
        f"{row['sps_slowest']:,.0f} to {row['sps_fastest']:,.0f} |"
        for row in bench["programs"]
    ]
    return "\n".join(
        [
            f"## {bench['env']} on {machine}, {hardware['cores_available']} cores",
            "",
            f"{packages}.",
            "",
            "| framework | backend | environments x steps | steps per second | iterations |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
