"""Reports of a comparison: a table, `equivalence.json` and a plot."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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


def report(config: Config, found: Comparison, mode: str) -> int:
    """Print the table and write the files; returns 0 if the frameworks do the same, else 1."""
    steps = config.num_iterations * config.ppo.batch_size
    tolerance = TOLERANCES[found.precision] if mode == "lockstep" else None
    summary = {name: _summary(config, found, name, tolerance) for name in found.differences}
    same = all(_is_same(entry) for entry in summary.values())
    task = f"{config.task.id} on {config.backend.name}, {found.precision}, seed {config.root.seed}"
    _print_wrapped(f"{task}, {steps:,} steps, {mode}, led by {found.leader}")
    _print_table(summary, tolerance)
    if tolerance and found.precision != "float64" and any(entry["over_tolerance"] for entry in summary.values()):
        _print_wrapped("is it rounding that was amplified, or an error? precision=float64 tells")
    sides = [config.experiment, found.leader, *found.differences]
    names = (config.task.name, config.backend.name, found.precision, mode, digest(sides))
    folder = Path(config.root.outputs) / "equivalence" / "-".join(map(file_name, names)) / f"seed{config.root.seed}"
    make_folder(folder)
    about = {"schema_version": SCHEMA_VERSION, "mode": mode, "leader": found.leader, "steps": steps, "same": same}
    about |= {"tolerance": tolerance and tolerance._asdict(), "frameworks": summary, "config": config.resolved}
    write_json(folder / "equivalence.json", about)
    title = f"{config.task.id}, {config.backend.name}, {found.precision}, {mode}"
    _plot(folder / "equivalence.svg", title, config, summary, tolerance.parameters if tolerance else None)
    print(f"the frameworks {'do' if same else 'do not do'} the same; {folder}")
    return 0 if same else 1


def _print_table(summary: Mapping[str, Mapping[str, Any]], tolerance: Tolerance | None) -> None:
    if tolerance is None:
        _print_wrapped("how long actions are the same, and the distance of parameters then and in the end")
        rows = [("framework", "same actions for", "then", "in the end")]
        for name, entry in summary.items():
            then, end = entry["distance_when_parting"], entry["parameters_distances"][-1]
            shown = "" if then is None else f"{then:.1e}"
            rows.append((name, f"{entry['identical_steps']:,} steps", shown, f"{end:.1e}"))
        print(aligned(rows, right=(1, 2, 3)))
        return
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


def _summary(config: Config, found: Comparison, name: str, tolerance: Tolerance | None) -> dict[str, Any]:
    differences, batch_size = found.differences[name], config.ppo.batch_size
    parted = next(((k, d.first) for k, d in enumerate(differences) if d.first is not None), None)
    parameters = [d.parameters for d in differences]
    untied = [d for d in differences if not d.tied]
    return {
        "identical_steps": len(differences) * batch_size if parted is None else parted[0] * batch_size + parted[1],
        "differing_actions": sum(d.actions for d in differences),
        "ties": [tie._asdict() for tie in found.ties[name]],
        "distance_when_parting": None if parted is None else [0.0, *parameters][parted[0]],  # at first they are equal
        "largest": {key: max((getattr(d, key) for d in untied), default=0.0) for key in COMPARED},
        "over_tolerance": sum(not d.within(tolerance) for d in untied) if tolerance else None,
        "compared_iterations": len(untied),
        **{f"{key}_distances": [getattr(d, key) for d in differences] for key in COMPARED},
    }


def _plot(path: Path, title: str, config: Config, summary: dict[str, dict[str, Any]], tolerance: float | None) -> None:
    """Plot parameter distances over environment steps, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    styles = itertools.cycle([("#0072b2", "-"), ("#d55e00", "--"), ("#009e73", ":")])
    for framework, (colour, line) in zip(summary, styles, strict=False):
        distances = np.array(summary[framework]["parameters_distances"])
        steps = config.ppo.batch_size * np.arange(1, len(distances) + 1)
        axes.plot(steps, np.maximum(distances, 1e-18), color=colour, linestyle=line, label=framework)
        if tolerance is None and (parted := summary[framework]["identical_steps"]) < steps[-1]:
            axes.axvline(parted, color=colour, linestyle=line, linewidth=0.8)
    if tolerance is not None:
        axes.axhline(tolerance, color="grey", linewidth=0.8, label="tolerance")
    axes.set(yscale="log", xlabel="environment steps", ylabel="relative distance of parameters")
    axes.set_title(title)
    axes.legend(frameon=False)
    figure.savefig(path)
