"""Settings of hyperparameters, or algorithms, compared over several environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.analysis import normalise, scale_of_tasks
from ppo_bench.commands.report.groups import ComparedTask, algorithms, differing, said, telling_keys
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.ranking import played
from ppo_bench.commands.report.statistics import Array, Estimate, bootstrap, iqm, probability_of_improvement
from ppo_bench.commands.report.table import Table

NOTE = (
    "Settings that were trained on the same environments, by the interquartile mean of their normalised scores, and "
    "the probability that one of their runs ends above one of the first's (Agarwal et al. 2021), both with 95% "
    "intervals by the bootstrap, stratified by environment. They are not corrected for the choice of the first."
)
COLUMNS = ("algorithm", "setting", "envs", "runs", "score, IQM", "above the first")

Finals = dict[str, Array]
"""Final returns by environment."""


class Overall(NamedTuple):
    """One of several settings, executed in one way, over all environments on which each of them was trained."""

    algorithm: str
    """Label of the way of executing."""
    setting: str
    """The hyperparameters that distinguish it from the others."""
    envs: int
    runs: int
    score: Estimate
    """Interquartile mean of the normalised scores."""
    above: Estimate | None
    """Probability that a run ends above one of the first setting; None for the first."""


def overall(tasks: Sequence[ComparedTask], options: Options) -> list[list[Overall]]:
    """Settings over several environments, best first, for each way of executing that has several of both."""
    return [
        _ranked(algorithm, scores, options)
        for algorithm in algorithms(tasks)
        for scores in _scores(tasks, algorithm)
        if len(scores) > 1 and len(next(iter(scores.values()))) > 1
    ]


def over_envs(found: Sequence[Sequence[Overall]]) -> Table:
    """A table of the settings over environments that `overall` found."""
    rows = [row for rows in found for row in rows]
    return Table("settings_over_envs", "Settings over environments", COLUMNS, rows, NOTE)


def _ranked(algorithm: str, scores: dict[str, Finals], options: Options) -> list[Overall]:
    runs = {setting: list(own.values()) for setting, own in scores.items()}
    estimates = {setting: bootstrap(iqm, own, **options.resampling) for setting, own in runs.items()}
    first, *others = sorted(runs, key=lambda setting: -estimates[setting].point)
    above: dict[str, Estimate | None] = {first: None}
    for setting in others:
        above[setting] = bootstrap(probability_of_improvement, runs[setting], runs[first], **options.resampling)
    return [
        Overall(
            algorithm, setting, len(runs[setting]), sum(map(len, runs[setting])), estimates[setting], above[setting]
        )
        for setting in (first, *others)
    ]


def _scores(tasks: Sequence[ComparedTask], algorithm: str) -> Iterator[dict[str, Finals]]:
    """Normalised scores of each setting by environment, for each family of settings that share several environments.

    Settings are the same if they agree in all keys that vary within several environments. Environments that lack one of
    a family's settings are left out, as are those whose versions or options differ.
    """
    of_env = {env: [task for task in tasks if task.env == env] for env in dict.fromkeys(task.env for task in tasks)}
    of_env = {env: own for env, own in of_env.items() if len(own) > 1 and len({played(task) for task in own}) == 1}
    times = Counter(key for own in of_env.values() for key in differing(map(_setting, own)))
    varied = [key for key in times if times[key] > 1]
    of_env = {env: _usual(own, varied, tasks) for env, own in of_env.items()}
    found: dict[tuple[str, ...], dict[str, Array]] = {}
    for env, own in of_env.items():
        scale = scale_of_tasks(own)
        pairs = [(task, group) for task in own for group in task.groups if group.algorithm == algorithm]
        for task, group in pairs:
            finals = group.values("final_return_mean")
            if scale and len(finals):
                key = tuple(said(_setting(task), name) for name in varied)
                found.setdefault(key, {})[env] = normalise(finals, scale)
    shared = [key for key, scores in found.items() if len(scores) > 1]
    while shared:
        first = max(shared, key=lambda key: len(found[key]))
        family = [key for key in shared if len(found[key].keys() & found[first].keys()) > 1]
        shared = [key for key in shared if key not in family]
        envs = [env for env in of_env if all(env in found[key] for key in family)]
        values = [dict(zip(varied, key, strict=True)) for key in family]
        telling = telling_keys(values)
        labels = [" ".join(f"{name}={own[name]}" for name in telling) for own in values]
        yield {label: {env: found[key][env] for env in envs} for label, key in zip(labels, family, strict=True)}


def _usual(own: Sequence[ComparedTask], varied: Sequence[str], tasks: Sequence[ComparedTask]) -> list[ComparedTask]:
    """An environment's tasks without those that have a value of their own where no other environment varies the key.

    The usual value of such a key is the one that most of them have, or of several the one that most `tasks` have.
    """
    for key in [name for name in differing(map(_setting, own)) if name not in varied]:
        within, everywhere = (Counter(said(_setting(task), key) for task in some) for some in (own, tasks))
        usual = max(within, key=lambda value: (within[value], everywhere[value]))
        own = [task for task in own if said(_setting(task), key) == usual]
    return list(own)


def _setting(task: ComparedTask) -> dict[str, Any]:
    return task.groups[0].first.setting
