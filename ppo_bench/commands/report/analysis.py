"""Computation of the report's numbers from groups of runs; curves are in curves.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.groups import SPEEDS, ComparedTask, Group, group_names
from ppo_bench.commands.report.published import MARGIN, equivalence_margin, scale_of
from ppo_bench.commands.report.statistics import (
    Array,
    Comparison,
    Estimate,
    Scores,
    bootstrap,
    iqm,
    mean,
    mean_interval,
    probability_of_improvement,
    ratio_of_means,
    tost,
)

ALL = "all"
"""Value of the column env for statistics over all tasks."""
OVER_TASKS: dict[str, Callable[[Scores], Array]] = {"normalised_score_iqm": iqm, "normalised_score_mean": mean}
"""Statistics over several tasks."""


class Pair(NamedTuple):
    """The test of equivalence of a group's final returns with its baseline's."""

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
    estimates: dict[tuple[str, str], dict[str, Estimate]]
    """By env and name of the group: an estimate for each metric."""
    pairs: list[Pair]

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
            if other is None or other is group:
                continue
            ours, theirs = group.values("steady_sps"), other.values("steady_sps")
            if len(ours) and len(theirs):
                own["speedup_steady_sps"] = bootstrap(ratio_of_means, [ours], [theirs])
            own |= _improvement([group], [other])
            if (count := min(len(_final_returns(group)), len(_final_returns(other)))) > 1:
                pairs.append(pair := _pair(task, group, other, margin))
                if (width := pair.test.margin) > 0:
                    low, high = pair.test.low / width, pair.test.high / width
                    own["difference_in_margins"] = Estimate(pair.test.difference / width, low, high, count)
    # Over tasks: only those that every group has finished, of environments with one setting.
    of_one_setting = [task for task in tasks if [other.env for other in tasks].count(task.env) == 1]
    shared = [
        task
        for task in of_one_setting
        if task.label in scales and len([group for group in task.groups if len(_final_returns(group))]) == len(names)
    ]
    if len(shared) > 1:
        for name in names:
            groups = [group for task in shared for group in task.groups if group.name == name]
            scores = [normalise(_final_returns(group), scales[group.task]) for group in groups]
            own = estimates[ALL, name] = {metric: bootstrap(each, scores) for metric, each in OVER_TASKS.items()}
            others = [
                other for task, group in zip(shared, groups, strict=True) if (other := task.baseline(group, baseline))
            ]
            if others != groups:
                own |= _improvement(groups, others)
    return Analysis(tasks, names, estimates, pairs)


def normalise(values: Array, scale: tuple[float, float]) -> Array:
    """Returns as normalised scores: 0 at the scale's low return, 1 at its high return."""
    low, high = scale
    return (values - low) / (high - low)


def _final_returns(group: Group) -> Array:
    return group.values("final_return_mean")


def _scale(task: ComparedTask) -> tuple[float, float] | None:
    """The published range of scores, else that of the final returns; None if all are equal or none are there."""
    known = scale_of(task.env_id)
    if known and known.high is not None:
        return known.low, known.high
    finals = np.concatenate([_final_returns(group) for group in task.groups])
    return (float(finals.min()), float(finals.max())) if len(set(finals)) > 1 else None


def _group_estimates(group: Group, scale: tuple[float, float] | None) -> dict[str, Estimate]:
    finals, found = _final_returns(group), {}
    if len(finals):
        found["final_return_iqm"] = bootstrap(iqm, [finals])
        found["final_return_mean"] = mean_interval(finals)
        if scale:
            found["normalised_score"] = mean_interval(normalise(finals, scale))
    measured = {metric: group.values(metric) for metric in SPEEDS}
    return found | {metric: mean_interval(values) for metric, values in measured.items() if len(values)}


def _improvement(groups: Sequence[Group], baselines: Sequence[Group]) -> dict[str, Estimate]:
    """The probability that a run ends above one of its baseline, for groups and their baselines on the same tasks."""
    ours, theirs = ([_final_returns(group) for group in side] for side in (groups, baselines))
    if not all(map(len, [*ours, *theirs])):
        return {}
    return {"probability_of_improvement": bootstrap(probability_of_improvement, ours, theirs)}


def _pair(task: ComparedTask, group: Group, baseline: Group, margin: float) -> Pair:
    """Equivalence test of a group against its baseline. Both have at least two runs."""
    x, y = _final_returns(group), _final_returns(baseline)
    ours, theirs = (
        [run.seed for run in each.finished if run.final_return_mean is not None] for each in (group, baseline)
    )
    # Runs with the same seed and backend use the same noise and begin alike, so they are compared in pairs.
    paired = ours == theirs and group.runs[0].backend == baseline.runs[0].backend
    # The margin does not depend on the group that is compared.
    test = tost(x, y, equivalence_margin(task.env_id, float(y.mean()), margin), paired=paired)
    return Pair(group, baseline, test, paired)
