"""Computation of the report's numbers from groups of runs; curves are in curves.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.groups import SPEEDS, ComparedTask, Group, group_names
from ppo_bench.commands.report.published import (
    MARGIN,
    Scale,
    equivalence_margin,
    scale_of,
)
from ppo_bench.commands.report.statistics import (
    Array,
    Comparison,
    Estimate,
    Scores,
    bootstrap,
    iqm,
    mean,
    mean_interval,
    median,
    probability_of_improvement,
    ratio_of_means,
    tost,
)

ALL = "all"
"""Value of the column env for statistics over all tasks."""
OVER_TASKS: dict[str, Callable[[Scores], Array]] = {
    "normalised_score_median": median,
    "normalised_score_iqm": iqm,
    "normalised_score_mean": mean,
}
"""Statistics over several tasks."""


class Pair(NamedTuple):
    """The test of equivalence of a group's final returns with its baseline's."""

    task: ComparedTask
    group: Group
    baseline: Group
    test: Comparison
    paired: bool
    """Whether both have the same seeds on the same backend; the test is then a paired one."""


@dataclass
class Analysis:
    """All numbers of the report but the curves."""

    tasks: list[ComparedTask]
    names: list[str]
    """Names of all groups, in order."""
    scales: dict[str, Scale]
    """Scale of each task's normalised scores, by the task's label."""
    estimates: dict[tuple[str, str], dict[str, Estimate]]
    """By env and name of the group: an estimate for each metric."""
    pairs: list[Pair]
    improvements: list[tuple[str, str, str, Estimate]]
    """Env, group A, group B, and the probability that a run of A ends with a higher return than one of B."""

    def of(self, group: Group) -> dict[str, Estimate]:
        """The estimates of a group."""
        return self.estimates[group.task, group.name]

    def algorithms(self, env: str, name: str) -> str:
        """The algorithms of the groups `name` on a task, or on all."""
        groups = [group for task in self.tasks for group in task.groups if group.name == name]
        return ", ".join(sorted({group.algorithm for group in groups if env in (group.task, ALL)}))


def analyse(tasks: list[ComparedTask], baseline: str, margin: float = MARGIN) -> Analysis:
    """Compute all numbers of the report but the curves.

    `baseline` is the framework, or the value of the `--by` key, with which other groups are compared. `margin` is the
    equivalence margin, as a fraction of a task's range of scores or of the baseline's mean return.
    """
    names = group_names(tasks)
    scales = {task.label: scale for task in tasks if (scale := _scale(task))}
    estimates: dict[tuple[str, str], dict[str, Estimate]] = {}
    pairs: list[Pair] = []
    for task in tasks:
        for group in task.groups:
            own = estimates[group.task, group.name] = _group_estimates(group, scales.get(group.task))
            other = task.baseline(group, baseline)
            if other and other is not group:
                own |= _ratios(group, other)
                if pair := _pair(task, group, other, margin):
                    pairs.append(pair)
                    seeds = min(len(group.finished), len(other.finished))
                    own["final_return_difference_90"] = Estimate(*pair.test[:3], seeds)
    # Over tasks: only those that every group has finished, of environments with one setting.
    of_one_setting = [task for task in tasks if [other.env for other in tasks].count(task.env) == 1]
    shared = [task for task in of_one_setting if len([g for g in task.groups if len(_final_returns(g))]) == len(names)]
    scored = [task for task in shared if task.label in scales]
    if len(scored) > 1:
        for name in names:
            scores = [normalise(_final_returns(group), scales[group.task]) for group in _groups_named(scored, name)]
            estimates[ALL, name] = {metric: bootstrap(statistic, scores) for metric, statistic in OVER_TASKS.items()}
    return Analysis(
        tasks=tasks,
        names=names,
        scales=scales,
        estimates=estimates,
        pairs=pairs,
        improvements=list(_improvements(tasks, shared, names)),
    )


def normalise(values: Array, scale: Scale) -> Array:
    """Returns as normalised scores: 0 at the scale's low return, 1 at its high return."""
    assert scale.high is not None
    return (values - scale.low) / (scale.high - scale.low)


def _final_returns(group: Group) -> Array:
    return group.values("final_return_mean")


def _scale(task: ComparedTask) -> Scale | None:
    """The published range of scores, else that of the final returns; None if all are equal or none are there."""
    known = scale_of(task.env_id)
    if known and known.high is not None:
        return known
    finals = np.concatenate([_final_returns(group) for group in task.groups])
    if not len(finals) or not finals.max() > finals.min():
        return None  # a single return has no scale
    low, high = float(finals.min()), float(finals.max())
    return Scale(task.env, low, high, "lowest run", "highest run", "the runs of this report")


def _group_estimates(group: Group, scale: Scale | None) -> dict[str, Estimate]:
    finals, found = _final_returns(group), {}
    if len(finals):
        found["final_return_median"] = bootstrap(median, [finals])
        found["final_return_iqm"] = bootstrap(iqm, [finals])
        found["final_return_mean"] = mean_interval(finals)
        if scale:
            found["normalised_score"] = mean_interval(normalise(finals, scale))
    measured = {metric: group.values(metric) for metric in SPEEDS}
    return found | {metric: mean_interval(values) for metric, values in measured.items() if len(values)}


def _ratios(group: Group, baseline: Group) -> dict[str, Estimate]:
    """How many times as fast as the baseline a group is."""
    found = {}
    for metric, name, ours, theirs in (
        ("speedup_steady_sps", "steady_sps", group, baseline),
        ("speedup_wall_time", "wall_seconds", baseline, group),
    ):
        x, y = ours.values(name), theirs.values(name)
        if len(x) and len(y):
            found[metric] = bootstrap(ratio_of_means, [x], [y])
    return found


def _pair(task: ComparedTask, group: Group, baseline: Group, margin: float) -> Pair | None:
    """Equivalence test of a group against its baseline; None if either has fewer than two runs."""
    ours, theirs = group.final_returns(), baseline.final_returns()
    x, y = np.array([*ours.values()]), np.array([*theirs.values()])
    if min(len(x), len(y)) < 2:
        return None
    # Runs with the same seed and backend use the same noise and begin alike, so they are compared in pairs.
    paired = list(ours) == list(theirs) and group.first.backend == baseline.first.backend
    # The margin does not depend on the group that is compared.
    test = tost(x, y, equivalence_margin(task.env_id, float(y.mean()), margin), paired=paired)
    return Pair(task, group, baseline, test, paired)


def _groups_named(tasks: Sequence[ComparedTask], name: str) -> list[Group]:
    """The group `name` of each task."""
    return [group for task in tasks for group in task.groups if group.name == name]


def _improvements(
    tasks: Sequence[ComparedTask], shared: Sequence[ComparedTask], names: Sequence[str]
) -> Iterator[tuple[str, str, str, Estimate]]:
    """Probabilities of improvement of each group over each earlier one: per task, and over several shared tasks."""
    for env, own in [*((task.label, [task]) for task in tasks), *([(ALL, shared)] if len(shared) > 1 else [])]:
        finals = {
            name: [_final_returns(group) for group in _groups_named(own, name) if len(_final_returns(group))]
            for name in names
        }
        known = [name for name in names if finals[name]]
        for later, ours in enumerate(known):
            for theirs in known[:later]:
                yield env, ours, theirs, bootstrap(probability_of_improvement, finals[ours], finals[theirs])
