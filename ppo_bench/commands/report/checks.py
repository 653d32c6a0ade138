"""Warnings about comparisons: too few seeds, different machines, unfinished runs, and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ppo_bench.commands.report.groups import ComparedTask, differing
from ppo_bench.runs.results import error_of

ENOUGH_SEEDS = 10
"""Number of seeds over which the bootstrap's intervals cover nearly as often as they say (docs/report.md)."""
SPARE_LOAD = 0.5
"""Excess of the load average over the number of cores without a warning, since recently ended threads still count."""
NAMED = 6
"""Maximum number of items that a warning names; the others are counted."""


def warnings(tasks: Sequence[ComparedTask]) -> list[str]:
    """A sentence for each warning."""
    groups = [(task, group) for task in tasks for group in task.groups]
    runs = [run for _, group in groups for run in group.runs]
    found = {
        "few finished seeds: the bootstrap's intervals are too narrow, and a single seed has none": [
            f"{task.label} {group.name} ({len(group.finished)})"
            for task, group in groups
            if len(group.finished) < ENOUGH_SEEDS
        ],
        "unfinished runs, which only the curves show": [
            f"{run.folder} ({error_of(run.path) or 'no error'})" for run in runs if not run.finished
        ],
        **_differences(tasks),
        "the machine had more to do than it has cores, which slows runs": [
            f"{run.folder} ({run.load_average:.1f} on {run.cores} cores)"
            for run in runs
            if (run.load_average or 0) > run.cores + SPARE_LOAD
        ],
    }
    return [f"{sentence}: {_some(names)}" for sentence, names in found.items() if names]


def _differences(tasks: Sequence[ComparedTask]) -> dict[str, list[str]]:
    """Facts in which runs of a task differ, such as backend or versions, with the number of runs for each value."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        facts = [run.facts for group in task.groups for run in group.runs]
        for key in differing(facts):
            # A fact that only some frameworks record, such as a flag of their own, is no difference.
            values = Counter(str(each[key]) for each in facts if key in each)
            if len(values) > 1:
                counted = ", ".join(f"{value} in {count}" for value, count in values.most_common(NAMED))
                found.setdefault(f"runs that are compared differ in {key}: {counted} runs", []).append(task.label)
    return found


def _some(names: Sequence[str]) -> str:
    """The first `NAMED` names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
