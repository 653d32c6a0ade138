"""Computation of the report's numbers from groups of runs; curves are in curves.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.report.groups import ComparedTask, Group, group_names
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.published import AgainstPublished, Scale, against_published, margin_beside, scale_of
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
MEANS = ("steady_sps", "mean_sps", "compile_seconds", "wall_seconds", "setup_seconds")
"""Measurements of speed, averaged over seeds."""


class Aggregate(NamedTuple):
    """A row of tables/aggregate.csv."""

    env: str
    algorithm: str
    group: str
    metric: str
    point: float
    low: float
    high: float
    seeds: int


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

    env: str
    ours: str
    theirs: str
    estimate: Estimate


@dataclass
class Analysis:
    """All numbers of the report but the curves."""

    tasks: list[ComparedTask]
    names: list[str]
    """Names of all groups, in order."""
    scales: dict[str, Scale]
    """Scale of each task's normalised scores, by the task's label."""
    aggregates: dict[tuple[str, str, str], Aggregate]
    """By env, group and metric."""
    pairs: list[Pair]
    improvements: list[Improvement]
    shared: list[ComparedTask]
    """Tasks for statistics over tasks: with a scale, finished by every group, and alone of their environment."""
    profiles: dict[str, Band]
    thresholds: Array
    references: list[AgainstPublished]

    def estimate(self, env: str, group: str, metric: str) -> Estimate | None:
        """The estimate of a metric."""
        found = self.aggregates.get((env, group, metric))
        return Estimate(found.point, found.low, found.high) if found else None

    def pair(self, group: Group) -> Pair | None:
        """The comparison of `group` with its baseline."""
        return next((pair for pair in self.pairs if pair.group is group), None)


def analyse(tasks: list[ComparedTask], options: Options) -> Analysis:
    """Compute all numbers of the report but the curves."""
    names = group_names(tasks)
    scales = {task.label: scale for task in tasks if (scale := _scale(task))}
    pairs = [pair for task in tasks for group in task.groups if (pair := _pair(task, group, options))]
    of_one_setting = [task for task in tasks if [other.env for other in tasks].count(task.env) == 1]
    shared = [task for task in of_one_setting if len([g for g in task.groups if len(_finals(g))]) == len(names)]
    scored = [task for task in shared if task.label in scales]
    aggregates = [row for task in tasks for group in task.groups for row in _of_group(group, scales, options)]
    aggregates += [row for pair in pairs for row in _of_pair(pair)]
    aggregates += _over_tasks(scored, names, scales, options)
    thresholds, profiles = _profiles(scored, names, scales, options)
    groups = [group for task in tasks for group in task.groups]
    return Analysis(
        tasks=tasks,
        names=names,
        scales=scales,
        aggregates={(row.env, row.group, row.metric): row for row in aggregates},
        pairs=pairs,
        improvements=list(_improvements(tasks, shared, names, options)),
        shared=scored,
        profiles=profiles,
        thresholds=thresholds,
        references=[row for group in groups for row in against_published(group, options.margin, options.margin_return)],
    )


def normalise(values: Array, scale: Scale) -> Array:
    """Returns as normalised scores: 0 at the scale's low return, 1 at its high return."""
    assert scale.high is not None
    return (values - scale.low) / (scale.high - scale.low)


def _finals(group: Group) -> Array:
    return group.values("final_return_mean")


def _scale(task: ComparedTask) -> Scale | None:
    """The published scale of a task's environment, or else the range of its returns; None if that is empty."""
    known = scale_of(task.env_id)
    if known and known.high is not None:
        return known
    finals = np.concatenate([_finals(group) for group in task.groups])
    if not len(finals) or not finals.max() > finals.min():
        return None  # a single return has no scale
    low, high = float(finals.min()), float(finals.max())
    return Scale(task.env, low, high, "lowest run", "highest run", "the runs of this report")


def _pair(task: ComparedTask, group: Group, options: Options) -> Pair | None:
    baseline = task.baseline(group, options.baseline)
    if baseline is None or baseline is group:
        return None

    def ratio(name: str, ours: Group, theirs: Group) -> Estimate | None:
        x, y = ours.values(name), theirs.values(name)
        if not len(x) or not len(y) or not (x > 0).all() or not (y > 0).all():
            return None
        return bootstrap(ratio_of_means, [x], [y], **options.resampling)

    ours, theirs = group.finals(), baseline.finals()
    x, y = np.array([*ours.values()]), np.array([*theirs.values()])
    # Runs with the same seed and backend use the same noise and begin alike, so they are compared in pairs.
    paired = list(ours) == list(theirs) and group.first.backend == baseline.first.backend
    returns = None
    if min(len(x), len(y)) > 1:
        # The margin does not depend on the group that is compared.
        margin = options.margin_return or margin_beside(task.env_id, float(y.mean()), options.margin)
        returns = tost(x, y, margin, paired=paired)
    speedup, wall = ratio("steady_sps", group, baseline), ratio("wall_seconds", baseline, group)
    return Pair(task, group, baseline, speedup, wall, returns, paired)


def _of_group(group: Group, scales: dict[str, Scale], options: Options) -> list[Aggregate]:
    finals = _finals(group)
    rows = []

    def add(metric: str, statistic: Callable[[Scores], Array] | None, values: Array) -> None:
        """Add a row with a bootstrap interval of `statistic`, or with the mean and Student's interval if it is None."""
        if len(values):
            estimate = bootstrap(statistic, [values], **options.resampling) if statistic else mean_interval(values)
            rows.append(Aggregate(group.task, group.algorithm, group.name, metric, *estimate, len(values)))

    scale = scales.get(group.task)
    add("final_return_median", median, finals)
    add("final_return_iqm", iqm, finals)
    add("final_return_mean", None, finals)
    if scale:
        score = "human_normalised_score" if scale.high_is == "human" else "normalised_score"
        add("optimality_gap", optimality_gap, normalise(finals, scale))
        add(score, None, normalise(finals, scale))
    for metric in MEANS:
        add(metric, None, group.values(metric))
    return rows


def _of_pair(pair: Pair) -> list[Aggregate]:
    group, seeds = pair.group, min(len(pair.group.finished), len(pair.baseline.finished))
    found = {"speedup_steady_sps": pair.speedup, "speedup_wall_time": pair.wall_speedup}
    found["final_return_difference_90"] = Estimate(*pair.returns[:3]) if pair.returns else None
    about = group.task, group.algorithm, group.name
    return [Aggregate(*about, metric, *estimate, seeds) for metric, estimate in found.items() if estimate]


def _groups_named(tasks: Sequence[ComparedTask], name: str) -> list[Group]:
    """The group `name` of each task."""
    return [group for task in tasks for group in task.groups if group.name == name]


def _scores(tasks: Sequence[ComparedTask], name: str, scales: dict[str, Scale]) -> list[Array]:
    return [normalise(_finals(group), scales[group.task]) for group in _groups_named(tasks, name)]


def _over_tasks(
    shared: Sequence[ComparedTask], names: Sequence[str], scales: dict[str, Scale], options: Options
) -> list[Aggregate]:
    """Aggregates of normalised scores over the `shared` tasks, if there are several."""
    rows = []
    human = [task for task in shared if scales[task.label].high_is == "human"]
    for tasks, kind in ((shared, "normalised_score"), (human, "human_normalised_score")):
        for name in names if len(tasks) > 1 else []:
            scores = _scores(tasks, name, scales)
            algorithms = ", ".join(sorted({group.algorithm for group in _groups_named(tasks, name)}))
            statistics = {f"{kind}_median": median, f"{kind}_iqm": iqm, f"{kind}_mean": mean}
            if tasks is shared:
                statistics["optimality_gap"] = optimality_gap
            for metric, statistic in statistics.items():
                estimate = bootstrap(statistic, scores, **options.resampling)
                rows.append(Aggregate(ALL, algorithms, name, metric, *estimate, min(map(len, scores))))
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
) -> Iterator[Improvement]:
    """Probabilities of improvement of each group over each earlier one: per task, and over several shared tasks."""
    for env, own in [*((task.label, [task]) for task in tasks), *([(ALL, shared)] if len(shared) > 1 else [])]:
        finals = {name: [_finals(group) for group in _groups_named(own, name) if len(_finals(group))] for name in names}
        known = [name for name in names if finals[name]]
        for later, ours in enumerate(known):
            for theirs in known[:later]:
                pair = finals[ours], finals[theirs]
                estimate = bootstrap(probability_of_improvement, *pair, **options.resampling)
                yield Improvement(env, ours, theirs, estimate)
