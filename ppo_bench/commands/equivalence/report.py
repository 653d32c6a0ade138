"""Reports of a comparison: a table and `equivalence.json`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppo_bench.commands.equivalence.differences import TOLERANCES, Difference, Tolerance
from ppo_bench.commands.equivalence.rounding import Tie
from ppo_bench.common.columns import aligned
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.values import digest, file_name
from ppo_bench.configuration.config import Config

WIDTH = 80
"""Columns of the report's sentences, a terminal's default."""
COMPARED = ("parameters", "movement", "losses", "gradient_norm")


class Comparison(NamedTuple):
    """All results of a comparison."""

    leader: str
    precision: str
    """The coarsest precision of those compared, whose tolerances hold."""
    differences: dict[str, list[Difference]]
    """Differences by framework, one for each iteration."""
    ties: dict[str, list[Tie]]


def report(config: Config, found: Comparison) -> int:
    """Print the table and write the files; returns 0 if the frameworks do the same, else 1."""
    steps = config.num_iterations * config.ppo.batch_size
    tolerance = TOLERANCES[found.precision]
    summary = {name: _summary(found.differences[name], found.ties[name], tolerance) for name in found.differences}
    same = all(_is_same(entry) for entry in summary.values())
    task = f"{config.task.id} on {config.backend.name}, {found.precision}, seed {config.root.seed}"
    _print_wrapped(f"{task}, {steps:,} steps, lockstep, led by {found.leader}")
    _print_table(summary, tolerance)
    if found.precision != "float64" and any(entry["over_tolerance"] for entry in summary.values()):
        _print_wrapped("is it rounding that was amplified, or an error? precision=float64 tells")
    sides = [config.experiment, found.leader, *found.differences]
    names = (config.task.name, config.backend.name, found.precision, digest(sides))
    folder = Path(config.root.outputs) / "equivalence" / "-".join(map(file_name, names)) / f"seed{config.root.seed}"
    make_folder(folder)
    about = {"schema_version": SCHEMA_VERSION, "leader": found.leader, "steps": steps, "same": same}
    about |= {"tolerance": tolerance._asdict(), "frameworks": summary, "config": config.resolved}
    write_json(folder / "equivalence.json", about)
    print(f"the frameworks {'do' if same else 'do not do'} the same; {folder}")
    return 0 if same else 1


def _print_table(summary: Mapping[str, Mapping[str, Any]], tolerance: Tolerance) -> None:
    _print_wrapped(
        "differing actions, and the largest distance of an iteration; tolerance: "
        f"{tolerance.parameters:.0e} of the parameters' norm and {tolerance.movement:.0e} of their movement, "
        f"losses and gradient norms {tolerance.losses:.0e}"
    )
    lines = [["framework", "actions", "ties", "parameters", "movement", "losses", "gradient", "over"]]
    for name, entry in summary.items():
        largest = [f"{entry['largest'][key]:.1e}" for key in COMPARED]
        counts = [f"{entry['differing_actions']:,}", str(len(entry["ties"]))]
        lines.append([name, *counts, *largest, f"{entry['over_tolerance']} of {entry['compared_iterations']}"])
    print(aligned(lines, right=range(1, 8)))


def _is_same(entry: Mapping[str, Any]) -> bool:
    """Whether a framework did the same as the leader. Nothing says so if every iteration holds a tie."""
    return entry["differing_actions"] == 0 and not entry["over_tolerance"] and entry["compared_iterations"] > 0


def _print_wrapped(sentence: str) -> None:
    print(textwrap.fill(sentence, WIDTH, break_long_words=False, break_on_hyphens=False))


def _summary(differences: Sequence[Difference], ties: Sequence[Tie], tolerance: Tolerance) -> dict[str, Any]:
    untied = [d for d in differences if not d.tied]
    return {
        "differing_actions": sum(d.actions for d in differences),
        "ties": [tie._asdict() for tie in ties],
        "largest": {key: max((getattr(d, key) for d in untied), default=0.0) for key in COMPARED},
        "over_tolerance": sum(not d.within(tolerance) for d in untied),
        "compared_iterations": len(untied),
        **{f"{key}_distances": [getattr(d, key) for d in differences] for key in COMPARED},
    }
