"""Computation of the report's numbers from groups of runs; curves are in curves.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.against import AgainstPublished, against_published, margin_beside
from ppo_bench.commands.report.groups import ComparedTask, Group, algorithms, baseline_of
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.published import Scale, scale_of
from ppo_bench.commands.report.statistics import (
    Array,
    Band,
    Comparison,
    Estimate,
    Scores,
    bootstrap,
    iqm,
    mean,
    mean_interval,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    ratio_of_means,
    tost,
)

ALL = "all"
"""Value of the column env for statistics over all tasks."""
THRESHOLDS = 101
"""Number of thresholds of a performance profile."""
HIGHEST_THRESHOLD = 8.0
"""Upper limit of the thresholds, as in Agarwal et al.; single games have far higher scores."""


class Aggregate(NamedTuple):
    """A row of tables/aggregate.csv."""

    env: str
    backend: str
    framework: str
    metric: str
    point: float
    low: float
    high: float
    seeds: int

    @property
    def estimate(self) -> Estimate:
        """The point with its interval."""
        return Estimate(self.point, self.low, self.high)


class Pair(NamedTuple):
    """The comparison of a group with its baseline."""

    task: ComparedTask
    group: Group
    baseline: Group
    speedup: Estimate | None
    """Ratio of steady SPS: the group's over the baseline's."""
    wall_speedup: Estimate | None
    """Ratio of wall times: the baseline's over the group's."""
    returns: Comparison | None
    """Equivalence test of the final returns."""
    paired: bool
    """Whether both have the same seeds on the same backend; the test is then a paired one."""


class Improvement(NamedTuple):
    """The probability that a run of `ours` has a higher final return than one of `theirs`."""

    task: str
    ours: str
    theirs: str
    estimate: Estimate


@dataclass
class Analysis:
    """All numbers of the report but the curves."""

    tasks: list[ComparedTask]
    algorithms: list[str]
    scales: dict[str, Scale]
    """The scale by which a task's scores are normalised, by the task's label; see `scale_of_tasks`."""
    aggregates: list[Aggregate]
    pairs: list[Pair]
    improvements: list[Improvement]
    shared: list[ComparedTask]
    """Tasks for statistics over tasks: with a scale, finished by every algorithm, and alone of their environment."""
    profiles: dict[str, Band]
    thresholds: Array
    references: list[AgainstPublished]

    @cached_property
    def by_metric(self) -> dict[tuple[str, str, str, str], Aggregate]:
        """The aggregates by env, backend, framework and metric."""
        return {row[:4]: row for row in self.aggregates}

    def aggregate(self, group: Group, metric: str) -> Aggregate | None:
        """The aggregate of a group's runs; None if there is none."""
        return self.by_metric.get((group.task, group.backend, group.framework, metric))

    def estimate(self, group: Group, metric: str) -> Estimate | None:
        """The estimate of that aggregate."""
        return found.estimate if (found := self.aggregate(group, metric)) else None


def analyse(tasks: list[ComparedTask], options: Options) -> Analysis:
    """Compute all numbers of the report but the curves."""
    names = algorithms(tasks)
    scales = {task.label: scale for task in tasks if (scale := scale_of_tasks([task]))}
    pairs = [pair for task in tasks for group in task.groups if (pair := _pair(task, group, options))]
    of_one_setting = [task for task in tasks if [other.env for other in tasks].count(task.env) == 1]
    shared = [task for task in of_one_setting if len([g for g in task.groups if len(_finals(g))]) == len(names)]
    scored = [task for task in shared if task.label in scales]
    aggregates = [row for task in tasks for group in task.groups for row in _of_group(group, scales, options)]
    aggregates += [row for pair in pairs for row in _of_pair(pair)]
    thresholds, profiles = _profiles(scored, names, scales, options)
    return Analysis(
        tasks=tasks,
        algorithms=names,
        scales=scales,
        aggregates=aggregates + _over_tasks(scored, scales, options),
        pairs=pairs,
        improvements=_improvements(tasks, shared, names, options),
        shared=scored,
        profiles=profiles,
        thresholds=thresholds,
        references=[
            row
            for task in tasks
            for group in task.groups
            for row in against_published(group, options.margin, options.margin_return)
        ],
    )


def normalise(values: Array, scale: Scale) -> Array:
    """Returns as normalised scores: 0 at the scale's low return, 1 at its high return."""
    assert scale.high is not None
    return (values - scale.low) / (scale.high - scale.low)


def _finals(group: Group) -> Array:
    return group.values("final_return_mean")


def scale_of_tasks(tasks: Sequence[ComparedTask]) -> Scale | None:
    """The published scale of an environment's tasks, or else the range of their returns; None if that is empty."""
    known = scale_of(tasks[0].env_id)
    if known and known.high is not None:
        return known
    finals = np.concatenate([_finals(group) for task in tasks for group in task.groups])
    if not len(finals) or not finals.max() > finals.min():
        return None  # a single return has no scale
    low, high = float(finals.min()), float(finals.max())
    return Scale(tasks[0].env, low, high, "lowest run", "highest run", "the runs of this report")


def _pair(task: ComparedTask, group: Group, options: Options) -> Pair | None:
    baseline = baseline_of(group, task, options.baseline)
    if baseline is None or baseline is group:
        return None

    def ratio(name: str, ours: Group, theirs: Group) -> Estimate | None:
        x, y = ours.values(name), theirs.values(name)
        if not len(x) or not len(y) or not y.mean() > 0 or not (x > 0).all() or not (y > 0).all():
            return None
        return bootstrap(ratio_of_means, [x], [y], **options.resampling)

    ours, theirs = group.finals(), baseline.finals()
    x, y = np.array([*ours.values()]), np.array([*theirs.values()])
    # Runs with the same seed and backend use the same noise and begin alike, so they are compared in pairs.
    paired = list(ours) == list(theirs) and group.backend == baseline.backend
    returns = None
    if min(len(x), len(y)) > 1:
        returns = tost(x, y, margin_of(task, y, options), paired=paired)
    speedup, wall = ratio("steady_sps", group, baseline), ratio("wall_seconds", baseline, group)
    return Pair(task, group, baseline, speedup, wall, returns, paired)


def margin_of(task: ComparedTask, baseline: Array, options: Options) -> float:
    """The equivalence margin of a task, as a return; it does not depend on the group that is compared.

    It is `margin_return` if that is set, and otherwise `margin_beside` the baseline's mean return.
    """
    if options.margin_return is not None:
        return options.margin_return
    return margin_beside(task.env_id, float(baseline.mean()), options.margin)


def _of_group(group: Group, scales: dict[str, Scale], options: Options) -> list[Aggregate]:
    finals = _finals(group)
    rows = []

    def add(metric: str, statistic: Callable[[Scores], Array] | None, values: Array) -> None:
        """Add a row with a bootstrap interval of `statistic`, or with the mean and Student's interval if it is None."""
        if len(values):
            estimate = bootstrap(statistic, [values], **options.resampling) if statistic else mean_interval(values)
            rows.append(Aggregate(group.task, group.backend, group.framework, metric, *estimate, len(values)))

    scale = scales.get(group.task)
    add("final_return_median", median, finals)
    add("final_return_iqm", iqm, finals)
    add("final_return_mean", None, finals)
    if scale:
        score = "human_normalised_score" if scale.high_is == "human" else "normalised_score"
        add("optimality_gap", optimality_gap, normalise(finals, scale))
        add(score, None, normalise(finals, scale))
    for metric in ("steady_sps", "mean_sps", "compile_seconds", "wall_seconds", "setup_seconds"):
        add(metric, None, group.values(metric))
    return rows


def _of_pair(pair: Pair) -> list[Aggregate]:
    rows = []
    group, seeds = pair.group, min(len(pair.group.finished), len(pair.baseline.finished))
    for metric, estimate in (("speedup_steady_sps", pair.speedup), ("speedup_wall_time", pair.wall_speedup)):
        if estimate:
            rows.append(Aggregate(group.task, group.backend, group.framework, metric, *estimate, seeds))
    if pair.returns:
        point, low, high = pair.returns[:3]
        metric = "final_return_difference_90"
        rows.append(Aggregate(group.task, group.backend, group.framework, metric, point, low, high, seeds))
    return rows


def _scores(tasks: Sequence[ComparedTask], algorithm: str, scales: dict[str, Scale]) -> list[Array]:
    return [
        normalise(_finals(group), scales[task.label])
        for task in tasks
        for group in task.groups
        if group.algorithm == algorithm
    ]


def _over_tasks(shared: Sequence[ComparedTask], scales: dict[str, Scale], options: Options) -> list[Aggregate]:
    """Aggregates of normalised scores over the `shared` tasks, if there are several."""
    rows = []
    human = [task for task in shared if scales[task.label].high_is == "human"]
    for tasks, name in ((shared, "normalised_score"), (human, "human_normalised_score")):
        for group in tasks[0].groups if len(tasks) > 1 else []:
            scores = _scores(tasks, group.algorithm, scales)
            found = {g.backend for task in tasks for g in task.groups if g.algorithm == group.algorithm}
            backend = ", ".join(sorted(found))
            statistics = {f"{name}_median": median, f"{name}_iqm": iqm, f"{name}_mean": mean}
            if tasks is shared:
                statistics["optimality_gap"] = optimality_gap
            for metric, statistic in statistics.items():
                estimate = bootstrap(statistic, scores, **options.resampling)
                seeds = min(len(task) for task in scores)
                rows.append(Aggregate(ALL, backend, group.framework, metric, *estimate, seeds))
    return rows


def _profiles(
    shared: Sequence[ComparedTask], names: Sequence[str], scales: dict[str, Scale], options: Options
) -> tuple[Array, dict[str, Band]]:
    scores = {name: _scores(shared, name, scales) for name in names}
    pooled = [task for tasks in scores.values() for task in tasks]
    if not pooled:
        return np.zeros(0), {}
    top = min(max(1.0, float(np.concatenate(pooled).max())), HIGHEST_THRESHOLD)
    low = min(0.0, float(np.concatenate(pooled).min()))
    thresholds = np.linspace(low, 1.05 * top, THRESHOLDS)
    return thresholds, {
        name: performance_profile(tasks, thresholds, **options.resampling) for name, tasks in scores.items()
    }


def _improvements(
    tasks: Sequence[ComparedTask], shared: Sequence[ComparedTask], names: Sequence[str], options: Options
) -> list[Improvement]:
    """Probabilities of improvement of each algorithm over each earlier one: per task, and over several shared tasks."""
    found = []
    for task in tasks:
        groups = [group for group in task.groups if len(_finals(group))]
        for later, ours in enumerate(groups):
            for theirs in groups[:later]:
                pair = [_finals(ours)], [_finals(theirs)]
                estimate = _improvement(*pair, options)
                found.append(Improvement(task.label, ours.algorithm, theirs.algorithm, estimate))
    if len(shared) > 1:
        finals = {name: [_finals(g) for task in shared for g in task.groups if g.algorithm == name] for name in names}
        for later, name in enumerate(names):
            for other in names[:later]:
                found.append(Improvement(ALL, name, other, _improvement(finals[name], finals[other], options)))
    return found


def _improvement(ours: Scores, theirs: Scores, options: Options) -> Estimate:
    return bootstrap(probability_of_improvement, ours, theirs, **options.resampling)
