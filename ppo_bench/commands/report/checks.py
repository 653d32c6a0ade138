"""Warnings about comparisons: too few seeds, different machines, unfinished runs, and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ppo_bench.commands.report.folders import LeftOut, Run
from ppo_bench.commands.report.groups import ComparedTask, differing
from ppo_bench.commands.report.options import Options
from ppo_bench.runs.results import RECENT_EPISODES, error_of

COVERAGE = {2: 0.51, 3: 0.74, 4: 0.79, 5: 0.83, 6: 0.86, 7: 0.88, 8: 0.89, 9: 0.89}
"""Actual coverage of percentile bootstrap intervals at a nominal 95%, by number of seeds, for the mean of normal scores
(docs/report.md)."""
EARLY = 0.2
"""Fraction of a run's episodes that its final return may hold without a warning."""
LOST = 0.1
"""Fraction of a run's steps that restarts may cut without a warning."""
SPARE_LOAD = 0.5
"""Excess of the load average over the number of cores without a warning, since recently ended threads still count."""
NAMED = 6
"""Maximum number of items that a warning names; the others are counted."""


def warnings(tasks: Sequence[ComparedTask], options: Options) -> list[str]:
    """A sentence for each warning."""
    checks = (_few_seeds, _early, _cut, _unfinished, _without_returns, _unlike, _loaded, _apart)
    return [sentence for check in checks for sentence in check(tasks)] + _backends(tasks, options)


def left_out(folders: Sequence[LeftOut]) -> list[str]:
    """A sentence for each of the first `NAMED` folders, and one with the number of the others."""
    more = [f"and {len(folders) - NAMED} more folders, named at the end"] if len(folders) > NAMED else []
    return [*map(str, folders[:NAMED]), *more]


def _few_seeds(tasks: Sequence[ComparedTask]) -> list[str]:
    groups = [(task, group, len(group.finished)) for task in tasks for group in task.groups]
    alone = [f"{task.label} {group.name} ({seeds})" for task, group, seeds in groups if seeds < 2]
    few = [
        f"{task.label} {group.name} ({COVERAGE[seeds]:.0%} at {seeds})"
        for task, group, seeds in groups
        if seeds in COVERAGE
    ]
    covered = "with few finished seeds the bootstrap's intervals (medians, IQMs, ratios) cover less than their 95%"
    return ([f"no two finished seeds, and so no intervals: {_some(alone)}"] if alone else []) + (
        [f"{covered}: {_some(few)}"] if few else []
    )


def _early(tasks: Sequence[ComparedTask]) -> list[str]:
    """Tasks in which the episodes of the final return are many of a run's, and so partly of an early policy."""
    names = [
        task.label
        for task in tasks
        if any(0 < (run.episodes or 0) < RECENT_EPISODES / EARLY for group in task.groups for run in group.finished)
    ]
    said = f"final returns, of the last {RECENT_EPISODES} episodes, hold over {EARLY:.0%} of a run's, early ones too"
    return [f"{said}; ppo_bench.evaluate plays the last policy alone: {_some(names)}"] if names else []


def _cut(tasks: Sequence[ComparedTask]) -> list[str]:
    """Runs in which restarts of the environments cut many episodes. These have no return, and are mostly long ones."""
    runs = [run for task in tasks for group in task.groups for run in group.finished]
    names = [
        f"{run.folder} ({run.cut_fraction:.0%} of its steps, {run.cut_episodes} episodes)"
        for run in runs
        if run.cut_fraction is not None and run.cut_fraction > LOST
    ]
    return [f"returns leave out the episodes that restarts of the environments cut: {_some(names)}"] if names else []


def _unfinished(tasks: Sequence[ComparedTask]) -> list[str]:
    runs = [run for task in tasks for group in task.groups for run in group.runs if not run.finished]
    names = [f"{run.folder} ({_done(run):.0%}{f': {error}' if (error := error_of(run.path)) else ''})" for run in runs]
    return [f"unfinished runs, which only the curves show: {_some(names)}"] if names else []


def _done(run: Run) -> float:
    return (run.global_step or 0) / run.total_timesteps


def _without_returns(tasks: Sequence[ComparedTask]) -> list[str]:
    runs = [run for task in tasks for group in task.groups for run in group.finished]
    names = [run.folder for run in runs if run.final_return_mean is None]
    return [f"no episode ended in finished runs, which have no return: {_some(names)}"] if names else []


def _unlike(tasks: Sequence[ComparedTask]) -> list[str]:
    """Facts in which runs of a task differ, such as hardware or versions, with the number of runs for each value."""
    said: dict[str, list[str]] = {}
    for task in tasks:
        runs = [run for group in task.groups for run in group.runs]
        for key in differing([run.facts for run in runs]):
            # A fact that only some frameworks record, such as a flag of their own, is no difference.
            having = [run for run in runs if key in run.facts]
            values = Counter(_shown(run.facts[key]) for run in having)
            if len(values) > 1:
                counted = ", ".join(f"{value} in {count}" for value, count in values.most_common(NAMED))
                said.setdefault(f"{key}: {counted} runs", []).append(task.label)
    return [f"runs that are compared differ in {what} ({_some(labels)})" for what, labels in said.items()]


def _backends(tasks: Sequence[ComparedTask], options: Options) -> list[str]:
    """Comparisons of groups on different backends; their differences are not due to the framework alone."""
    found = [
        f"{task.label} ({other.first.framework} on {other.first.backend}, "
        f"{group.first.framework} on {group.first.backend})"
        for task in tasks
        for group in task.groups
        if (other := task.baseline(group, options.baseline)) and other.first.backend != group.first.backend
    ]
    return [f"frameworks are compared on different backends, whose speeds differ too: {_some(found)}"] if found else []


def _loaded(tasks: Sequence[ComparedTask]) -> list[str]:
    """Runs whose final load average exceeded the number of cores, so that they were slowed by other processes."""
    runs = [run for task in tasks for group in task.groups for run in group.finished]
    names = [
        f"{run.folder} ({run.load_average:.1f} on {cores} cores)"
        for run in runs
        if run.load_average is not None
        and isinstance(cores := run.facts.get("hardware.cores"), int)
        and run.load_average > cores + SPARE_LOAD
    ]
    return [f"the machine had more to do than it has cores, which slows runs: {_some(names)}"] if names else []


def _apart(tasks: Sequence[ComparedTask]) -> list[str]:
    """Environments whose runs differ in hyperparameters, so that they are different tasks."""
    envs = Counter(task.env for task in tasks)
    sentences = []
    for env, count in envs.items():
        if count > 1:
            keys = differing([task.groups[0].first.setting for task in tasks if task.env == env])
            sentences.append(f"{env} was trained with {count} settings, which are not pooled: {_some(keys)}")
    return sentences


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
