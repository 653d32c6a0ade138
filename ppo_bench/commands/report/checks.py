"""Warnings about comparisons: too few seeds, different machines, unfinished runs, and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.groups import ComparedTask, differing
from ppo_bench.commands.report.tables import shown
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


def warnings(tasks: Sequence[ComparedTask], baseline: str) -> list[str]:
    """A sentence for each warning."""
    seeds = [(f"{task.label} {group.name}", len(group.finished)) for task in tasks for group in task.groups]
    runs = [run for task in tasks for group in task.groups for run in group.runs]
    finished = [run for run in runs if run.finished]
    pairs = [(task, group, task.baseline(group, baseline)) for task in tasks for group in task.groups]
    found = {
        "no two finished seeds, and so no intervals": [f"{name} ({number})" for name, number in seeds if number < 2],
        "with few finished seeds the bootstrap's intervals (medians, IQMs, ratios) cover less than their 95%": [
            f"{name} ({COVERAGE[number]:.0%} at {number})" for name, number in seeds if number in COVERAGE
        ],
        # These are partly of an early policy.
        f"final returns, of the last {RECENT_EPISODES} episodes, hold over {EARLY:.0%} of a run's, early ones too; "
        "ppo_bench.evaluate plays the last policy alone": [
            task.label
            for task in tasks
            if any(0 < (run.episodes or 0) < RECENT_EPISODES / EARLY for g in task.groups for run in g.finished)
        ],
        # They have no return, and are mostly long ones.
        "returns leave out the episodes that restarts of the environments cut": [
            f"{run.folder} ({run.lost_step_fraction:.0%} of its steps, {run.cut_episodes} episodes)"
            for run in finished
            if (run.lost_step_fraction or 0) > LOST
        ],
        "unfinished runs, which only the curves show": [_progress(run) for run in runs if not run.finished],
        "no episode ended in finished runs, which have no return": [
            run.folder for run in finished if run.final_return_mean is None
        ],
        **_differences(tasks),
        "the machine had more to do than it has cores, which slows runs": [
            f"{run.folder} ({run.load_average:.1f} on {run.cores} cores)"
            for run in finished
            if (run.load_average or 0) > run.cores + SPARE_LOAD
        ],
        **dict(_settings(tasks)),
        "frameworks are compared on different backends, whose speeds differ too": [
            f"{task.label} ({other.first.framework} on {other.first.backend}, "
            f"{group.first.framework} on {group.first.backend})"
            for task, group, other in pairs
            if other and other.first.backend != group.first.backend
        ],
    }
    return [f"{sentence}: {some(names)}" for sentence, names in found.items() if names]


def _progress(run: Run) -> str:
    """How far an unfinished run is, and what ended it."""
    done, error = (run.global_step or 0) / run.total_timesteps, error_of(run.path)
    return f"{run.folder} ({done:.0%}{f': {error}' if error else ''})"


def _differences(tasks: Sequence[ComparedTask]) -> dict[str, list[str]]:
    """Facts in which runs of a task differ, such as hardware or versions, with the number of runs for each value."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        facts = [run.facts for group in task.groups for run in group.runs]
        for key in differing(facts):
            # A fact that only some frameworks record, such as a flag of their own, is no difference.
            values = Counter(shown(each[key]) for each in facts if key in each)
            if len(values) > 1:
                counted = ", ".join(f"{value} in {count}" for value, count in values.most_common(NAMED))
                found.setdefault(f"runs that are compared differ in {key}: {counted} runs", []).append(task.label)
    return found


def _settings(tasks: Sequence[ComparedTask]) -> Iterator[tuple[str, list[str]]]:
    """Environments whose runs differ in hyperparameters, so that they are different tasks."""
    for env, count in Counter(task.env for task in tasks).items():
        keys = differing([task.groups[0].first.setting for task in tasks if task.env == env])
        if keys:
            yield f"{env} was trained with {count} settings, which are not pooled", keys


def some(names: Sequence[str]) -> str:
    """The first `NAMED` names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
