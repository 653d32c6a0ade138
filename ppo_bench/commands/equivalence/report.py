"""Reports of a comparison: a table, `equivalence.json` and a plot."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.differences import Difference
from ppo_bench.commands.equivalence.rounding import Sensitivity, Tie
from ppo_bench.commands.equivalence.tolerances import TOLERANCES
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.values import digest, file_name
from ppo_bench.configuration.config import Config

WIDTH = 80
NAME_WIDTH = 14
"""Widths of the report, a terminal's default, and of its column of names, in characters."""
COMPARED = ("parameters", "movement", "losses", "gradient_norm")


class Agreement(NamedTuple):
    """All results of a comparison."""

    leader: str
    precision: str
    """The coarsest precision of those compared, whose tolerances hold."""
    differences: dict[str, list[Difference]]
    """Differences by framework, one for each iteration."""
    ties: dict[str, list[Tie]]
    sensitivities: dict[int, Sensitivity]
    """Sensitivities by iteration, for some of the iterations over the tolerance."""


def report(config: Config, found: Agreement, mode: str) -> int:
    """Print the table and write the files; returns 0 if the frameworks do the same, else 1."""
    steps = config.num_iterations * config.ppo.batch_size
    tolerance = TOLERANCES[found.precision] if mode == "lockstep" else None
    summary = {name: _summary(config, found, name, mode) for name in found.differences}
    same = all(_is_same(entry) for entry in summary.values())
    task = f"{config.task.id} on {config.backend.name}, {found.precision}, seed {config.root.seed}"
    _say(f"{task}, {steps:,} steps, {mode}, led by {found.leader}")
    if tolerance:
        _say(
            "differing actions, and the largest distance of an iteration; tolerance: "
            f"{tolerance.parameters:.0e} of the parameters' norm and {tolerance.movement:.0e} of their movement, "
            f"losses and gradient norms {tolerance.losses:.0e}"
        )
        print(f"{'framework':<{NAME_WIDTH}}{'actions':>8}{'ties':>6}{'parameters':>12}{'movement':>10}", end="")
        print(f"{'losses':>9}{'gradient':>10}{'over':>6}")
    else:
        _say("how long actions are the same, and the distance of parameters then and in the end")
        print(f"{'framework':<{NAME_WIDTH}}{'same actions for':>20}{'then':>12}{'in the end':>12}")
    for name, entry in summary.items():
        if len(name) >= NAME_WIDTH:  # a variant's name is long
            print(name)
        print(_row(name if len(name) < NAME_WIDTH else "", entry, mode))
    for name, tied in found.ties.items():
        if tied:
            compared = summary[name]["compared_iterations"]
            _say(f"{name}: {compared} of {config.num_iterations} iterations are compared, those without a tie")
        for tie in tied:
            _say(
                f"tie: iteration {tie.iteration}, step {tie.step}, environment {tie.env}: {found.leader} chose "
                f"{tie.leader_action}, {name} {tie.other_action}; their scores are {tie.margin:.1e} apart"
            )
    for iteration, tried in found.sensitivities.items():
        _say(
            f"iteration {iteration} is over the tolerance; {found.leader} lands up to {tried.largest:.1e} from itself "
            f"when its inputs are changed by rounding (over the tolerance in {tried.over} of {tried.tries} tries)"
        )
    sides = [config.experiment, found.leader, *found.differences]
    names = (config.task.name, config.backend.name, found.precision, mode, digest(sides))
    folder = Path(config.root.outputs) / "equivalence" / "-".join(map(file_name, names)) / f"seed{config.root.seed}"
    make_folder(folder)
    about = {"schema_version": SCHEMA_VERSION, "mode": mode, "leader": found.leader, "steps": steps, "same": same}
    about |= {"tolerance": tolerance and tolerance._asdict(), "frameworks": summary, "config": config.resolved}
    about["sensitivities"] = {str(k): s._asdict() for k, s in found.sensitivities.items()}
    write_json(folder / "equivalence.json", about)
    title = f"{config.task.id}, {config.backend.name}, {found.precision}, {mode}"
    _plot(folder / "equivalence.svg", title, config, summary, tolerance.parameters if tolerance else None)
    print(f"the frameworks {'do' if same else 'do not do'} the same; {folder}")
    return 0 if same else 1


def _is_same(entry: Mapping[str, Any]) -> bool:
    """Whether a framework did the same as the leader. Nothing says so if every iteration holds a tie."""
    return entry["differing_actions"] == 0 and not entry["over_tolerance"] and entry["compared_iterations"] > 0


def _say(sentence: str) -> None:
    print(textwrap.fill(sentence, WIDTH, break_long_words=False, break_on_hyphens=False))


def _summary(config: Config, found: Agreement, name: str, mode: str) -> dict[str, Any]:
    differences, batch_size = found.differences[name], config.ppo.batch_size
    parted = next(((k, d.first) for k, d in enumerate(differences) if d.first is not None), None)
    untied = [d for d in differences if not d.tied]
    return {
        "identical_steps": len(differences) * batch_size if parted is None else parted[0] * batch_size + parted[1],
        "differing_actions": sum(d.actions for d in differences),
        "ties": [tie._asdict() for tie in found.ties[name]],
        "distance_when_parting": None if parted is None else _distance_before(differences, parted[0]),
        "largest": {key: max((getattr(d, key) for d in untied), default=0.0) for key in COMPARED},
        "over_tolerance": _over(found.precision, untied) if mode == "lockstep" else None,
        "compared_iterations": len(untied),
        **{f"{key}_distances": [getattr(d, key) for d in differences] for key in COMPARED},
    }


def _distance_before(differences: Sequence[Difference], iteration: int) -> float:
    """The distance of the parameters at the start of an iteration, counted from 0; the initial ones are equal."""
    return differences[iteration - 1].parameters if iteration else 0.0


def _over(precision: str, differences: list[Difference]) -> int:
    return sum(not d.within(TOLERANCES[precision]) for d in differences)


def _row(name: str, entry: dict[str, Any], mode: str) -> str:
    if mode == "free":
        parting = entry["distance_when_parting"]
        then = "" if parting is None else f"{parting:.1e}"
        end = entry["parameters_distances"][-1]
        return f"{name:<{NAME_WIDTH}}{entry['identical_steps']:>14,} steps{then:>12}{end:>12.1e}"
    largest = entry["largest"]
    return (
        f"{name:<{NAME_WIDTH}}{entry['differing_actions']:>8,}{len(entry['ties']):>6}{largest['parameters']:>12.1e}"
        f"{largest['movement']:>10.1e}{largest['losses']:>9.1e}{largest['gradient_norm']:>10.1e}"
        f"{entry['over_tolerance']:>6}"
    )


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
